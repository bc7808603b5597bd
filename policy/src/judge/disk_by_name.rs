//! Disks without a serial, such as Xen's: whether such a disk may be identified by the device name
//! that EC2 was given, and which facts contradict that.
//!
//! A device name proves nothing about the disk behind it. The other known facts about the disk are
//! therefore compared with the request, and one contradiction is a refusal.

use ebs_csi_wire::{Disk, Origin, Refusal};

use crate::named_values;
use crate::setting::default_of;

named_values! {
    /// How disks that have no serial are treated.
    pub DisksWithoutSerial {
        /// Refused.
        Refuse => "refuse",
        /// Identified by their device name, where the kernel reports that they are Xen's.
        ByName => "by-name",
    }
}

impl Default for DisksWithoutSerial {
    /// Returns the policy's default, and without one the narrowest value.
    fn default() -> Self {
        Self::parse(default_of("mount-helper", "--disks-without-serial")).unwrap_or(Self::Refuse)
    }
}

/// Whose a fact about the disk says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// It says nothing.
    Unknown,
    /// The volume's of the request.
    ThisVolume,
    /// Another volume's.
    Another,
}

/// Who uses the disk or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nobody.
    Nobody,
    /// The disk is mounted, or shown raw, beneath the kubelet root and nowhere else.
    Kubelet,
    /// Something other than a volume's mount.
    Elsewhere,
    /// A mount under the disk's device number belongs to another disk, which has left the node.
    Former,
}

/// What is known about a disk that was found by its device name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameFacts {
    /// As which volume the disk was identified earlier, since it was attached.
    pub before: Whose,
    /// Another disk was identified as the volume of the request, and is still attached.
    pub other_disk: bool,
    /// The volume for which this driver made the file system on the disk, by its identifier.
    pub mark: Whose,
    /// Who uses the disk.
    pub used: Use,
}

/// Checks that the disk at the device name may be used as the volume.
pub fn judge(request: &Disk, facts: &NameFacts) -> Result<(), Refusal> {
    match facts.before {
        // The disk was identified as the volume since it was attached, so later writes do not
        // matter.
        Whose::ThisVolume => return Ok(()),
        Whose::Another => return Err(Refusal::DeviceMismatch),
        Whose::Unknown => {}
    }
    if facts.other_disk {
        return Err(Refusal::DeviceAmbiguous);
    }
    // A copy carries the identifier of the volume that its snapshot was taken from.
    if facts.mark == Whose::Another && request.origin != Origin::Copy {
        return Err(Refusal::DeviceMismatch);
    }
    match facts.used {
        Use::Nobody | Use::Kubelet => Ok(()),
        Use::Elsewhere => Err(Refusal::StillHeld),
        Use::Former => Err(Refusal::DeviceMismatch),
    }
}

//! Disks that do not say whose they are, as those of Xen: whether they are taken by the name that EC2 was told, and what must not
//! speak against it.
//!
//! A name is a place. It proves nothing, so everything else that can be known of the disk is held against it, and one contradiction
//! is a refusal.

use ebs_csi_wire::{Disk, Origin, Refusal};

/// What is done with disks that have no serial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DisksWithoutSerial {
    /// Refused.
    Refuse,
    /// Taken by their name, where the kernel says that they are Xen's.
    #[default]
    ByName,
}

impl DisksWithoutSerial {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Refuse, Self::ByName];

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::ByName => "by-name",
        }
    }

    /// From the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }
}

/// Which volume this very disk was taken for before, since it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// None that is known.
    Nothing,
    /// The volume of the request.
    ThisVolume,
    /// Another one.
    Another,
}

/// Whose identifier the file system on the disk carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// None that a format of this driver writes, or there is no file system.
    None,
    /// That of the volume of the request.
    ThisVolume,
    /// That of another volume.
    Another,
}

/// Who has the disk, or a part of it, in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nobody.
    Nobody,
    /// It is mounted, or shown raw, beneath the kubelet root and nowhere else.
    Kubelet,
    /// Something that is not a volume's.
    Elsewhere,
    /// What is mounted under its number holds another disk, which has left the node.
    Former,
}

/// What is known of a disk that was found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameFacts {
    /// What it was taken for.
    pub before: Before,
    /// Another disk was taken for the volume of the request, and is still there.
    pub other_disk: bool,
    /// What stands on it.
    pub mark: Mark,
    /// Who has it in use.
    pub used: Use,
}

/// The disk at the name may be taken for the volume.
///
/// # Errors
/// The reason that speaks against it.
pub fn judge(asked: &Disk, facts: &NameFacts) -> Result<(), Refusal> {
    match facts.before {
        // It is known since it was attached, whatever has been written to it.
        Before::ThisVolume => return Ok(()),
        Before::Another => return Err(Refusal::DeviceMismatch),
        Before::Nothing => {}
    }
    if facts.other_disk {
        return Err(Refusal::DeviceAmbiguous);
    }
    // A copy carries the identifier of the volume that its snapshot was taken from.
    if facts.mark == Mark::Another && asked.origin != Origin::Copy {
        return Err(Refusal::DeviceMismatch);
    }
    match facts.used {
        Use::Nobody | Use::Kubelet => Ok(()),
        Use::Elsewhere => Err(Refusal::StillHeld),
        Use::Former => Err(Refusal::DeviceMismatch),
    }
}

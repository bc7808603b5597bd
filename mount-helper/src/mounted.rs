//! Which disks this helper has had mounted itself: whatever keeps their file system alive in
//! another mount namespace is a copy of that mount, and may be dealt with as one. A file system
//! that was mounted by somebody else is his.
use crate::attachments::Attachments;
use crate::content;
use crate::device::Device;
use crate::tools;
use ebs_csi_wire::VolumeId;
use rustix::io::Errno;

/// What was mounted: a disk or a part of it.
#[derive(Debug, Default)]
pub struct Mounted(Attachments<()>);

impl Mounted {
    /// It is mounted at a place of this helper's.
    pub fn add(&self, sequence: u64, number: u64) {
        self.0.insert((sequence, number), ());
    }

    /// It was mounted since this helper started.
    pub fn has(&self, sequence: u64, number: u64) -> bool {
        self.0.has((sequence, number))
    }

    /// It was, or its file system is one that this driver made for the volume, which an earlier
    /// helper may have mounted.
    pub fn accounts_for(&self, device: &Device, volume: &VolumeId) -> Result<bool, Errno> {
        if self.has(device.sequence(), device.number()) {
            return Ok(true);
        }
        Ok(content::identifier(&content::head(device)?) == Some(tools::identifier(volume)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachments::MOST;

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let mounted = Mounted::default();
        for sequence in 0..MOST as u64 + 1 {
            mounted.add(sequence, 7);
        }
        assert!(!mounted.has(0, 7) && mounted.has(1, 7) && !mounted.has(1, 8));
    }
}

//! Space and inodes as CSI reports them.

use ebs_csi_proto::csi::{self, volume_usage::Unit};
use ebs_csi_wire as wire;

/// Returns one entry for bytes, and one for inodes where they are counted.
pub(super) fn entries(usage: &wire::Usage) -> Vec<csi::VolumeUsage> {
    let mut entries = vec![csi::VolumeUsage {
        available: signed(usage.available_bytes),
        total: signed(usage.total_bytes),
        used: signed(usage.used_bytes),
        unit: Unit::Bytes as i32,
    }];
    // btrfs and raw devices count no inodes.
    if usage.total_inodes > 0 && !usage.block {
        entries.push(csi::VolumeUsage {
            available: signed(usage.available_inodes),
            total: signed(usage.total_inodes),
            used: signed(usage.used_inodes),
            unit: Unit::Inodes as i32,
        });
    }
    entries
}

/// Converts to CSI's signed numbers; a larger size becomes the largest one.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A raw device has 1 entry, bytes; a file system with an inode count has 2.
    #[test]
    fn only_file_systems_with_inode_counts_report_inodes() {
        let usage = wire::Usage {
            total_bytes: u64::MAX,
            used_bytes: 1,
            available_bytes: 2,
            total_inodes: 3,
            used_inodes: 1,
            available_inodes: 2,
            ..wire::Usage::default()
        };
        let both = entries(&usage);
        assert_eq!(both.len(), 2);
        assert_eq!(both[0].total, i64::MAX);
        assert_eq!((both[1].total, both[1].unit), (3, Unit::Inodes as i32));
        assert_eq!(entries(&wire::Usage { block: true, ..usage }).len(), 1);
        let uncounted = wire::Usage { total_inodes: 0, ..usage };
        assert_eq!(entries(&uncounted).len(), 1);
    }
}

//! What a disk may be: checked, copied, frozen, held, late, partitioned, replayed, used raw beside
//! its mount, without a serial.
mod checks;
mod copied;
mod disk_groups;
mod elsewhere;
mod features;
mod frozen;
mod held;
mod late_disks;
pub(crate) mod partitions;
mod raw_beside_mounted;
mod replay;
pub(crate) mod xen;

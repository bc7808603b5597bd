//! A volume's disk: finding, opening and claiming it, recognising its content, and what is
//! remembered of it.
mod attachments;
pub mod content;
pub mod device;
pub(crate) mod device_number;
pub(crate) mod examined_disks;
pub mod filesystem_identifier;
pub(crate) mod format_comparison;
pub(crate) mod mounted_disks;
pub(crate) mod read_only_record;
pub(crate) mod xen_disk_record;

//! A volume's disk: finding, opening and claiming it, recognising its content, and what is
//! remembered of it.
pub(crate) mod area_search;
pub(crate) mod attachments;
pub mod content;
pub mod device;
pub(crate) mod device_number;
mod direct_read;
pub mod filesystem_identifier;
pub(crate) mod format_comparison;
pub(crate) mod promises;
pub(crate) mod reader;
pub(crate) mod record_file;
pub(crate) mod xen_disk_record;

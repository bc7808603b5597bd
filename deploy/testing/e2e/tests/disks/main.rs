//! The content of a disk is preserved, and the counters of the disk's controller are reported.

mod content;
mod statistics;

//! Container images from scratch, written as OCI archives.
//!
//! An archive is the tar form of an [OCI image
//! layout](https://github.com/opencontainers/image-spec): one layer, its configuration, a manifest
//! and an index. `ctr images import` accepts it unchanged. All times and owners are fixed and all
//! entries are sorted, so that the same files give the same bytes.

mod archive;
mod contents;

pub use archive::{Image, write};
pub use contents::{Contents, ContentsError, Entry};

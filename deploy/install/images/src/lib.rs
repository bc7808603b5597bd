//! Container images from scratch, written as OCI archives and layouts.
//!
//! An archive is the tar form of an [OCI image
//! layout](https://github.com/opencontainers/image-spec): one layer, its configuration, a manifest
//! and an index. `ctr images import` accepts it unchanged. All times and owners are fixed and all
//! entries are sorted, so that the same files give the same bytes.

mod archive;
mod bom;
mod contents;
mod crates;
mod debian;
mod driver;
mod licence;
mod linked;
mod parts;
mod platform;
mod references;
mod text_input;

pub use archive::{Image, Packed, write_layout};
pub use contents::{Contents, ContentsError, Entry};
pub use driver::{Built, Release, Settings, build};
pub use platform::Platform;
pub use references::{pinned, sidecars};

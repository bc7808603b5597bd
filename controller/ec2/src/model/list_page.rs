//! Pages of listings.

use ebs_csi_wire::VolumeId;

/// Selects one page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The most entries; EC2 takes 5 or more.
    pub max: Option<u32>,
    /// The token of this page, from the page before it; `None` for the first page.
    pub token: Option<String>,
    /// The volume whose snapshots are listed; `None` for all.
    pub volume: Option<VolumeId>,
}

/// A page of a listing.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The entries; may be empty although a next page exists.
    pub entries: Vec<T>,
    /// The token of the next page.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Creates a page. EC2 marks the last page by a missing or an empty token.
    pub(crate) fn new(entries: Vec<T>, next: Option<&str>) -> Self {
        Self { entries, next: next.filter(|token| !token.is_empty()).map(str::to_owned) }
    }
}

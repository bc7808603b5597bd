//! EC2's resources, in the driver's own types.

use std::collections::BTreeMap;
use std::time::Duration;

use ebs_csi_wire::VolumeId;
use tokio::time::Instant;

use crate::error::Ec2Error;

pub(super) mod instance;
pub(super) mod instance_status;
pub(super) mod modification;
pub(super) mod sdk_field;
pub(super) mod snapshot;
pub(super) mod timestamp;
pub(super) mod volume;
pub(super) mod volume_status;

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

/// Tags to put on a resource, sorted, so that equal requests have equal bytes.
pub type Tags = BTreeMap<String, String>;

/// The tags that mark volumes as a cluster's own: one key that must be present, and one tag with
/// its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTags {
    /// The key that every volume of this driver has.
    pub key: &'static str,
    /// The tag that names the owner.
    pub owner: (String, String),
}

impl OwnTags {
    /// Returns whether these tags hold both.
    pub fn are_on(&self, tags: &Tags) -> bool {
        tags.contains_key(self.key) && tags.get(&self.owner.0) == Some(&self.owner.1)
    }
}

/// About how long EC2's reads lag behind writes.
pub const READ_LAG: Duration = Duration::from_secs(2);

/// The result of a look, and when the call to EC2 began that gave it. Reads lag behind writes, so
/// the result may show a state from before that time.
#[derive(Clone, Debug)]
pub struct DatedLook<T> {
    /// When the call began.
    pub began: Instant,
    /// What the call showed.
    pub result: LookResult<T>,
}

/// A look has three results, never two: a failed look says nothing about the resource.
#[derive(Clone, Debug)]
pub enum LookResult<T> {
    /// EC2 showed the resource.
    Present(T),
    /// A complete answer of EC2 did not hold the resource. A resource that was created seconds ago
    /// may be absent for a while, because reads lag behind writes.
    Absent,
    /// No complete answer came.
    Unknown(Ec2Error),
}

impl<T> LookResult<T> {
    /// Returns the resource, when it was shown.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// Returns `Some` when the resource was shown and `None` when it is absent.
    ///
    /// # Errors
    /// The reason why nothing is known.
    pub fn known(self) -> Result<Option<T>, Ec2Error> {
        match self {
            Self::Present(value) => Ok(Some(value)),
            Self::Absent => Ok(None),
            Self::Unknown(error) => Err(error),
        }
    }
}

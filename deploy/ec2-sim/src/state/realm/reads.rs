//! The behaviour of Describe calls where EC2's documentation leaves it open.

use serde::{Deserialize, Serialize};

/// How Describe calls select and fail where EC2's documentation leaves it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reads {
    /// Whether a page is cut before filters apply, as recorded replies of DescribeVolumeStatus
    /// show: the page may then be empty and have a successor.
    pub filters_after_page: bool,
    /// Whether, while a zone is unavailable, calls without ids, or with ids of that zone, fail (EC2
    /// API reference, DescribeInstances). Otherwise only calls without ids, filters and paging
    /// fail.
    pub outage_by_id: bool,
}

impl Default for Reads {
    fn default() -> Self {
        Self {
            filters_after_page: true,
            outage_by_id: true,
        }
    }
}

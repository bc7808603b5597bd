//! How a realm answers Describe calls where EC2's documents leave it open.

use serde::{Deserialize, Serialize};

/// How Describe calls select and fail, where EC2's documents leave it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reads {
    /// A page is cut before filters are applied, as recorded answers of DescribeVolumeStatus show:
    /// it may be empty and have a successor.
    pub filters_after_page: bool,
    /// While a zone is unavailable, calls without ids, or with ids of that zone, fail (EC2 API
    /// reference, DescribeInstances). Otherwise only calls without ids, filters and page do.
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

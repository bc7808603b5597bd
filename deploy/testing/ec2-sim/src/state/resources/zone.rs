//! Availability zones.

use serde::{Deserialize, Serialize};

/// A zone as one account sees it. Names differ between accounts; ids do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// The name, such as `us-east-1a`.
    pub name: String,
    /// The id, such as `use1-az6`.
    pub id: String,
    #[serde(default)]
    pub state: ZoneState,
    /// The kind of the zone: EC2's `zoneType`.
    #[serde(default, rename = "type")]
    pub kind: ZoneKind,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZoneKind {
    #[default]
    #[serde(rename = "availability-zone")]
    Availability,
    #[serde(rename = "local-zone")]
    Local,
    #[serde(rename = "wavelength-zone")]
    Wavelength,
}

/// The state of a zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZoneState {
    /// The zone works.
    #[default]
    Available,
    /// Calls that concern the zone are refused.
    Unavailable,
}

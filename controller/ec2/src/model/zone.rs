//! Availability zones of the Region.

use aws_sdk_ec2::types as sdk;

use super::sdk_field::{self, Incomplete};

/// A zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The zone's name in this account (`us-east-1a`).
    pub name: String,
    /// The zone's id, the same in all accounts (`use1-az6`).
    pub id: String,
    /// The kind.
    pub kind: ZoneKind,
    /// Whether EC2 reports that the zone works normally.
    pub available: bool,
}

sdk_field::words! {
    /// The kind of a zone.
    pub enum ZoneKind {
        /// An availability zone.
        AvailabilityZone = "availability-zone",
        /// A local zone.
        LocalZone = "local-zone",
        /// A Wavelength zone.
        WavelengthZone = "wavelength-zone",
    }
}

impl Zone {
    pub(crate) fn read(answer: &sdk::AvailabilityZone) -> Result<Self, Incomplete> {
        Ok(Self {
            name: sdk_field::required(answer.zone_name(), "zoneName")?.to_owned(),
            id: answer.zone_id().unwrap_or_default().to_owned(),
            kind: ZoneKind::read(answer.zone_type().unwrap_or("availability-zone")),
            available: matches!(answer.state(), Some(sdk::AvailabilityZoneState::Available) | None),
        })
    }
}

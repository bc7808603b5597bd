//! DescribeAvailabilityZones.

use aws_sdk_ec2::types as sdk;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::describe::page::read_all;
use crate::error::Ec2Error;
use crate::model::sdk_field::{self, Incomplete};
use crate::sdk::call::{accept_dry_run, send};

impl Ec2 {
    /// Returns the zones of the Region that this account may use.
    pub async fn availability_zones(&self, call: &Call) -> Result<Vec<Zone>, Ec2Error> {
        let action = Action::DescribeAvailabilityZones;
        self.core
            .read(call, action, || async {
                let output = send!(action, self.core.client.describe_availability_zones());
                read_all(action, output.availability_zones(), Zone::read)
            })
            .await
    }

    /// Checks whether the controller may use EC2, by a dry run of DescribeAvailabilityZones. The
    /// dry run is sent once, and once more after AWS refused the cached credentials; it changes
    /// nothing and reads nothing.
    ///
    /// # Errors
    /// The reason why not.
    pub async fn check_access(&self) -> Result<(), Ec2Error> {
        let action = Action::DescribeAvailabilityZones;
        let send = || async {
            send!(action, self.core.client.describe_availability_zones().dry_run(true));
            Ok(())
        };
        let mut result = self.core.send_once(action, send).await.0;
        if let Err(error) = &result
            && self.core.drop_refused_credentials(error)
        {
            result = self.core.send_once(action, send).await.0;
        }
        accept_dry_run(result)
    }
}

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

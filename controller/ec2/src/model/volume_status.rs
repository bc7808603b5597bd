//! Volume status: health, and how much of its source's data a volume has.

use aws_sdk_ec2::types as sdk;
use ebs_csi_wire::VolumeId;

use super::sdk_field::{self, Incomplete};

/// The status of a volume (EC2 API reference, `VolumeStatusItem`). It may be minutes old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// The volume.
    pub volume: VolumeId,
    /// The volume's health.
    pub health: Health,
    /// How much of its source's data the volume has.
    pub initialization: Initialization,
    /// Each check by name and result (`io-enabled`, `passed`).
    pub details: Vec<(String, String)>,
}

sdk_field::words! {
    /// The health of a volume.
    pub enum Health {
        /// Normal.
        Ok = "ok",
        /// Stalled or degraded, or I/O is disabled.
        Impaired = "impaired",
        /// Slower than it should be.
        Warning = "warning",
        /// Not known yet.
        InsufficientData = "insufficient-data",
    }
}

/// Whether all data is on the volume, or is still fetched on first access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initialization {
    /// All data is on the volume; also for a volume without a source.
    Complete,
    /// Data is still being fetched.
    Running {
        /// Percent, when EC2 reports it.
        progress: Option<i64>,
        /// Seconds until all data is on the volume, when EC2 reports them.
        seconds_left: Option<i64>,
    },
}

impl VolumeStatus {
    pub(crate) fn read(answer: &sdk::VolumeStatusItem) -> Result<Self, Incomplete> {
        let status = sdk_field::required(answer.volume_status(), "volumeStatus")?;
        let details: Vec<(String, String)> = status
            .details()
            .iter()
            .filter_map(|d| Some((d.name()?.as_str().to_owned(), d.status()?.to_owned())))
            .collect();
        let running = details
            .iter()
            .any(|(name, value)| name == "initialization-state" && value == "initializing");
        let progress = answer.initialization_status_details();
        Ok(Self {
            volume: sdk_field::id(answer.volume_id(), "volumeId", VolumeId::parse)?,
            health: status.status().map_or(Health::InsufficientData, |s| Health::read(s.as_str())),
            initialization: if running {
                Initialization::Running {
                    progress: progress.and_then(|p| p.progress()),
                    // EC2 reports 0 while it does not know.
                    seconds_left: progress
                        .and_then(|p| p.estimated_time_to_complete_in_seconds())
                        .filter(|s| *s > 0),
                }
            } else {
                Initialization::Complete
            },
            details,
        })
    }
}

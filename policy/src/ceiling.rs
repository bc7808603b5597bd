//! The compiled rules under the settings that requests are judged by. Which of their values permit
//! more than the rules alone is a matter of [`crate::setting`].

use std::time::Duration;

use ebs_csi_wire::FsType;

use crate::judge::disk_by_name::DisksWithoutSerial;
use crate::judge::untrusted_images::{NodevNosuid, UntrustedImages};
use crate::place::PlaceClass;
use crate::tool::Tool;
use crate::variant::Policy;

/// The values of a settings file or of flags. `None` keeps the compiled rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CeilingSettings {
    /// The file systems that are offered.
    pub file_systems: Option<Vec<FsType>>,
    /// The limit for the run time of a tool.
    pub tool_deadline: Option<Duration>,
    /// Where volumes may be mounted.
    pub places: Option<PlaceClass>,
    /// How file systems that this driver did not make are treated.
    pub untrusted_images: Option<UntrustedImages>,
    /// Which mounts ignore set-user-id bits and device nodes.
    pub nodev_nosuid: Option<NodevNosuid>,
    /// How disks that have no serial are treated.
    pub disks_without_serial: Option<DisksWithoutSerial>,
}

/// The compiled rules under settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ceiling {
    policy: Policy,
    settings: CeilingSettings,
}

/// A setting that would leave nothing allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CeilingError {
    /// No file system is left.
    #[error("no file system is left: name at least one of ext3, ext4, xfs")]
    NoFileSystem,
    /// A tool would have no time to run.
    #[error("a tool needs some time: give a deadline of at least one second")]
    NoTime,
}

impl Ceiling {
    /// Returns the compiled rules of a policy, unchanged.
    pub fn of(policy: Policy) -> Self {
        Self { policy, settings: CeilingSettings::default() }
    }

    /// Returns the compiled rules under settings.
    pub fn under(policy: Policy, settings: CeilingSettings) -> Result<Self, CeilingError> {
        if settings.file_systems.as_ref().is_some_and(Vec::is_empty) {
            return Err(CeilingError::NoFileSystem);
        }
        if settings.tool_deadline.is_some_and(|deadline| deadline < Duration::from_secs(1)) {
            return Err(CeilingError::NoTime);
        }
        Ok(Self { policy, settings })
    }

    /// Returns the policy.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns whether the file system is offered.
    #[must_use]
    pub fn offers(&self, fs: FsType) -> bool {
        self.settings.file_systems.as_ref().is_none_or(|offered| offered.contains(&fs))
    }

    /// Returns how long a tool may run.
    #[must_use]
    pub fn deadline(&self, tool: &Tool) -> Duration {
        self.settings.tool_deadline.map_or(tool.deadline, |limit| limit.min(tool.deadline))
    }

    /// Returns where volumes may be mounted.
    pub fn places(&self) -> PlaceClass {
        self.settings.places.unwrap_or(self.policy.places)
    }

    /// Returns how file systems that this driver did not make are treated.
    pub fn untrusted_images(&self) -> UntrustedImages {
        self.settings.untrusted_images.unwrap_or_default()
    }

    /// Returns which mounts ignore set-user-id bits and device nodes.
    pub fn nodev_nosuid(&self) -> NodevNosuid {
        self.settings.nodev_nosuid.unwrap_or_default()
    }

    /// Returns how disks that have no serial are treated.
    pub fn disks_without_serial(&self) -> DisksWithoutSerial {
        self.settings.disks_without_serial.unwrap_or_default()
    }
}

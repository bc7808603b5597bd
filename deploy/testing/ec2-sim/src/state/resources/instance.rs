//! The lifecycle of an instance: running <-> stopped, then terminated.

use super::Tags;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// The state of an instance; `until` is when a passing state ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub(crate) enum InstanceState {
    Pending {
        until: Millis,
    },
    Running,
    Stopping {
        until: Millis,
    },
    Stopped,
    ShuttingDown {
        until: Millis,
    },
    /// Terminated; listed for another hour.
    Terminated {
        since: Millis,
    },
}

/// How long a terminated instance stays listed, in milliseconds.
pub(crate) const LISTED_MS: u64 = 3_600_000;

/// The root device's name, of every instance.
pub(crate) const ROOT_DEVICE: &str = "/dev/xvda";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstanceEvent {
    /// The instance has stopped: the guest holds no device any longer.
    Stopped,
    /// The instance is terminated: its volumes are free.
    Terminated,
    /// The instance is no longer listed.
    Gone,
}

/// The result of one of EC2's checks of a running instance (EC2 user guide, "Status checks for
/// Amazon EC2 instances").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckResult {
    #[default]
    Ok,
    Impaired,
    /// The check was not made yet.
    Initializing,
    /// The check could not be made.
    InsufficientData,
}

impl CheckResult {
    /// Returns EC2's name of the reachability that belongs to the status.
    pub(crate) fn reachability(self) -> String {
        match self {
            Self::Ok => "passed".to_owned(),
            Self::Impaired => "failed".to_owned(),
            Self::Initializing | Self::InsufficientData => super::name_of(self),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct InstanceChecks {
    /// The check of the host, with its network and power.
    pub(crate) system: CheckResult,
    /// The check of the guest.
    pub instance: CheckResult,
    pub(crate) attached_ebs: CheckResult,
}

/// Results to report from now on; a result that is not given stays.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChecksChange {
    pub(crate) system: Option<CheckResult>,
    pub instance: Option<CheckResult>,
    pub(crate) attached_ebs: Option<CheckResult>,
}

impl InstanceChecks {
    pub fn with(self, findings: ChecksChange) -> Self {
        Self {
            system: findings.system.unwrap_or(self.system),
            instance: findings.instance.unwrap_or(self.instance),
            attached_ebs: findings.attached_ebs.unwrap_or(self.attached_ebs),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Instance {
    pub id: String,
    pub(crate) instance_type: String,
    pub zone: String,
    pub(crate) life: InstanceState,
    pub(crate) outpost: Option<String>,
    /// Device names that are in use though DescribeInstances does not list them.
    pub(crate) hidden_devices: Vec<String>,
    pub(crate) hibernation: bool,
    /// Whether the last stop saved the instance's memory.
    pub(crate) hibernated: bool,
    pub(crate) checks: InstanceChecks,
    pub(crate) launched: Millis,
    pub tags: Tags,
}

impl Instance {
    /// Returns EC2's code and name of the state.
    pub fn state(&self) -> (u32, &'static str) {
        match self.life {
            InstanceState::Pending { .. } => (0, "pending"),
            InstanceState::Running => (16, "running"),
            InstanceState::ShuttingDown { .. } => (32, "shutting-down"),
            InstanceState::Terminated { .. } => (48, "terminated"),
            InstanceState::Stopping { .. } => (64, "stopping"),
            InstanceState::Stopped => (80, "stopped"),
        }
    }

    /// Returns EC2's code for the reason why the instance does not run, or `None` while it is
    /// starting or running.
    pub(crate) fn state_reason(&self) -> Option<&'static str> {
        match self.life {
            InstanceState::Pending { .. } | InstanceState::Running => None,
            InstanceState::Stopping { .. } | InstanceState::Stopped if self.hibernated => {
                Some("Client.UserInitiatedHibernate")
            }
            _ => Some("Client.UserInitiatedShutdown"),
        }
    }

    pub(crate) fn due(&self) -> Option<Millis> {
        match self.life {
            InstanceState::Pending { until }
            | InstanceState::Stopping { until }
            | InstanceState::ShuttingDown { until } => Some(until),
            InstanceState::Terminated { since } => Some(since.plus(LISTED_MS)),
            InstanceState::Running | InstanceState::Stopped => None,
        }
    }

    pub(crate) fn advance(&mut self, now: Millis) -> Option<InstanceEvent> {
        let due = self.due().filter(|d| *d <= now)?;
        let (life, event) = match self.life {
            InstanceState::Pending { .. } => (InstanceState::Running, None),
            InstanceState::Stopping { .. } => {
                (InstanceState::Stopped, Some(InstanceEvent::Stopped))
            }
            InstanceState::ShuttingDown { .. } => {
                (InstanceState::Terminated { since: due }, Some(InstanceEvent::Terminated))
            }
            InstanceState::Terminated { .. } => return Some(InstanceEvent::Gone),
            InstanceState::Running | InstanceState::Stopped => return None,
        };
        self.life = life;
        event
    }
}

/// Returns the MAC address of an instance's only network interface.
pub(crate) fn mac(instance: &str) -> String {
    let digits = instance.trim_start_matches("i-");
    let part = |i: usize| digits.get(i..i + 2).unwrap_or("00");
    format!("0a:{}:{}:{}:{}:00", part(1), part(3), part(13), part(15))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstanceType {
    pub name: &'static str,
    /// The maximum number of volumes, including the root volume.
    pub(crate) maximum_attachments: u32,
    /// `shared` if network interfaces take from the same number, else `dedicated`.
    pub(crate) limit_type: &'static str,
    pub(crate) cards: u32,
    /// `nitro` or `xen`.
    pub(crate) hypervisor: &'static str,
}

const fn shared(name: &'static str, maximum_attachments: u32) -> InstanceType {
    let hypervisor = "nitro";
    InstanceType { name, maximum_attachments, limit_type: "shared", cards: 1, hypervisor }
}

const fn dedicated(name: &'static str, maximum_attachments: u32) -> InstanceType {
    InstanceType { limit_type: "dedicated", ..shared(name, maximum_attachments) }
}

/// The types with their published limits, on an instance with one network interface and without
/// the disks of an instance store; and `z9.large`, a type that no release of a driver knows.
pub(crate) const TYPES: &[InstanceType] = &[
    shared("m5.large", 27),
    shared("c5.large", 27),
    dedicated("m7i.large", 32),
    dedicated("m7i.24xlarge", 64),
    dedicated("m7i.48xlarge", 128),
    InstanceType { cards: 2, ..dedicated("r8gb.48xlarge", 128) },
    InstanceType { hypervisor: "xen", ..shared("t2.nano", 40) },
    dedicated("z9.large", 100),
];

pub(crate) fn find_type(name: &str) -> Option<&'static InstanceType> {
    TYPES.iter().find(|t| t.name == name)
}

/// Returns the maximum number of volumes on an instance of this type, including the root volume; 27
/// for an unknown type.
pub(crate) fn attachment_limit(name: &str) -> u32 {
    find_type(name).map_or(27, |t| t.maximum_attachments)
}

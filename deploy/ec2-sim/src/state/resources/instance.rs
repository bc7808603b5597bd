//! The lifecycle of an instance: running <-> stopped, then terminated.

use super::instance_checks::Checks;
use super::tags::Tags;
use crate::time::Millis;
use serde::Serialize;

/// The state of an instance; `until` is when a passing state ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum Life {
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

/// What a transition of an instance means for its volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The instance has stopped: the guest holds no device any longer.
    Stopped,
    /// The instance is terminated: its volumes are free.
    Terminated,
    /// The instance is no longer listed.
    Gone,
}

#[derive(Debug, Clone, Serialize)]
pub struct Instance {
    pub id: String,
    pub instance_type: String,
    pub zone: String,
    pub life: Life,
    pub outpost: Option<String>,
    /// Device names that are in use though DescribeInstances does not list them.
    pub hidden_devices: Vec<String>,
    /// Whether the instance was launched with hibernation enabled.
    pub hibernation: bool,
    /// Whether the last stop saved the instance's memory.
    pub hibernated: bool,
    pub checks: Checks,
    pub launched: Millis,
    pub tags: Tags,
}

impl Instance {
    /// Returns EC2's code and name of the state.
    pub fn state(&self) -> (u32, &'static str) {
        match self.life {
            Life::Pending { .. } => (0, "pending"),
            Life::Running => (16, "running"),
            Life::ShuttingDown { .. } => (32, "shutting-down"),
            Life::Terminated { .. } => (48, "terminated"),
            Life::Stopping { .. } => (64, "stopping"),
            Life::Stopped => (80, "stopped"),
        }
    }

    /// Returns EC2's code for the reason why the instance does not run, or `None` while it is
    /// starting or running.
    pub fn state_reason(&self) -> Option<&'static str> {
        match self.life {
            Life::Pending { .. } | Life::Running => None,
            Life::Stopping { .. } | Life::Stopped if self.hibernated => {
                Some("Client.UserInitiatedHibernate")
            }
            _ => Some("Client.UserInitiatedShutdown"),
        }
    }

    pub fn due(&self) -> Option<Millis> {
        match self.life {
            Life::Pending { until } | Life::Stopping { until } | Life::ShuttingDown { until } => {
                Some(until)
            }
            Life::Terminated { since } => Some(since.plus(LISTED_MS)),
            Life::Running | Life::Stopped => None,
        }
    }

    pub fn advance(&mut self, now: Millis) -> Option<Event> {
        let due = self.due().filter(|d| *d <= now)?;
        let (life, event) = match self.life {
            Life::Pending { .. } => (Life::Running, None),
            Life::Stopping { .. } => (Life::Stopped, Some(Event::Stopped)),
            Life::ShuttingDown { .. } => (Life::Terminated { since: due }, Some(Event::Terminated)),
            Life::Terminated { .. } => return Some(Event::Gone),
            Life::Running | Life::Stopped => return None,
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

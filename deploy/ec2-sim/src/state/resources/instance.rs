//! The lifecycle of an instance: running <-> stopped, then terminated.

use super::instance_checks::Checks;
use super::tags::Tags;
use crate::time::Millis;
use serde::Serialize;

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum Life {
    /// Starting.
    Pending {
        /// When the instance is running.
        until: Millis,
    },
    /// Running.
    Running,
    /// Shutting down to stop.
    Stopping {
        /// When the instance is stopped.
        until: Millis,
    },
    /// Stopped.
    Stopped,
    /// Shutting down to terminate.
    ShuttingDown {
        /// When the instance is terminated.
        until: Millis,
    },
    /// Terminated; listed for another hour.
    Terminated {
        /// When the instance was terminated.
        since: Millis,
    },
}

/// How long a terminated instance stays listed, in milliseconds.
pub(crate) const LISTED_MS: u64 = 3_600_000;

/// The result of a due transition of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The instance is running.
    Running,
    /// The instance has stopped: the guest holds no device any longer.
    Stopped,
    /// The instance is terminated: its volumes are free.
    Terminated,
    /// The instance is no longer listed.
    Gone,
}

/// An instance.
#[derive(Debug, Clone, Serialize)]
pub struct Instance {
    /// The instance's id, `i-…`.
    pub id: String,
    /// The name of the instance type.
    pub instance_type: String,
    /// The name of the zone.
    pub zone: String,
    /// The state of the instance.
    pub life: Life,
    /// The number of network interfaces.
    pub enis: u32,
    /// The root device's name.
    pub root_device: String,
    /// The image's id.
    pub image: String,
    /// The ARN of the instance's Outpost.
    pub outpost: Option<String>,
    /// Device names that are in use though DescribeInstances does not list them.
    pub hidden_devices: Vec<String>,
    /// The mode of the instance's metadata service: `on`, `hang` or `off`.
    pub imds: String,
    /// Whether the instance was launched with hibernation enabled.
    pub hibernation: bool,
    /// Whether the last stop saved the instance's memory.
    pub hibernated: bool,
    /// The results of EC2's status checks while the instance runs.
    pub checks: Checks,
    /// The time at which the instance was launched.
    pub launched: Millis,
    /// The instance's tags.
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

    /// Returns when the next transition is due.
    pub fn due(&self) -> Option<Millis> {
        match self.life {
            Life::Pending { until } | Life::Stopping { until } | Life::ShuttingDown { until } => {
                Some(until)
            }
            Life::Terminated { since } => Some(since.plus(LISTED_MS)),
            Life::Running | Life::Stopped => None,
        }
    }

    /// Performs the transition that is due.
    pub fn advance(&mut self, now: Millis) -> Option<Event> {
        let due = self.due().filter(|d| *d <= now)?;
        let (life, event) = match self.life {
            Life::Pending { .. } => (Life::Running, Event::Running),
            Life::Stopping { .. } => (Life::Stopped, Event::Stopped),
            Life::ShuttingDown { .. } => (Life::Terminated { since: due }, Event::Terminated),
            Life::Terminated { .. } => return Some(Event::Gone),
            Life::Running | Life::Stopped => return None,
        };
        self.life = life;
        Some(event)
    }

    /// Returns whether a volume can be attached in this state.
    pub fn attachable(&self) -> bool {
        matches!(self.life, Life::Running | Life::Stopped)
    }
}

/// Returns the MAC address of an instance's n-th network interface.
pub(crate) fn mac(instance: &str, n: u32) -> String {
    let digits = instance.trim_start_matches("i-");
    let part = |i: usize| digits.get(i..i + 2).unwrap_or("00");
    format!(
        "0a:{}:{}:{}:{}:{n:02x}",
        part(1),
        part(3),
        part(13),
        part(15)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Instance {
        Instance {
            id: "i-0123456789abcdef0".to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "us-east-1a".to_owned(),
            life: Life::Running,
            enis: 1,
            root_device: "/dev/xvda".to_owned(),
            image: "ami-1".to_owned(),
            outpost: None,
            hidden_devices: Vec::new(),
            imds: "on".to_owned(),
            hibernation: false,
            hibernated: false,
            checks: Checks::default(),
            launched: Millis(0),
            tags: Tags::new(),
        }
    }

    #[test]
    fn an_instance_stops_starts_and_terminates() {
        let mut i = fresh();
        assert_eq!((i.state(), i.due()), ((16, "running"), None));
        i.life = Life::Stopping { until: Millis(5) };
        assert_eq!(
            (i.advance(Millis(4)), i.advance(Millis(5))),
            (None, Some(Event::Stopped))
        );
        assert!(i.attachable());
        i.life = Life::Pending { until: Millis(9) };
        assert!(!i.attachable());
        assert_eq!(i.advance(Millis(9)), Some(Event::Running));
        i.life = Life::ShuttingDown { until: Millis(20) };
        assert_eq!(i.advance(Millis(25)), Some(Event::Terminated));
        assert_eq!(
            (i.state(), i.due()),
            ((48, "terminated"), Some(Millis(20).plus(LISTED_MS)))
        );
        assert_eq!(i.advance(Millis(20).plus(LISTED_MS)), Some(Event::Gone));
    }
}

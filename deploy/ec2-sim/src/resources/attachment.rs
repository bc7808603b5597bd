//! An attachment's life: attaching -> attached -> detaching (-> busy) -> gone.

use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Where an attachment stands. A `None` time means: stuck until somebody acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum Phase {
    /// Accepted; the device is not there yet.
    Attaching {
        /// When it becomes attached.
        until: Option<Millis>,
        /// When DescribeInstances already says attached, if that is earlier than DescribeVolumes does.
        mapped: Option<Millis>,
    },
    /// The instance has the device.
    Attached,
    /// A detach was accepted.
    Detaching {
        /// When the device is asked for.
        until: Option<Millis>,
        /// Whether the guest is asked at all.
        force: bool,
    },
    /// The guest still holds the device after a detach was accepted.
    Busy {
        /// When to look again.
        again: Option<Millis>,
    },
}

/// One volume on one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The instance.
    pub instance: String,
    /// The device name as it was asked for.
    pub device: String,
    /// When AttachVolume was accepted.
    pub since: Millis,
    /// Where it stands.
    pub phase: Phase,
    /// Whether the volume goes with the instance.
    pub delete_on_termination: bool,
    /// The EBS card, where the instance type has several.
    pub card: u32,
    /// When the device appears, if it has not yet.
    pub appears: Option<Millis>,
    /// How long after `attached` the device appears, where a fault says so, milliseconds.
    #[serde(default)]
    pub device_late_ms: Option<u64>,
}

/// What became of an attachment when its time came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing is due.
    None,
    /// It has become attached: the device must appear.
    Attached,
    /// The device, which was late, must appear.
    Appear,
    /// The device must be taken away, or found held.
    Release {
        /// Without asking the guest.
        force: bool,
    },
}

impl Attachment {
    /// A new attachment that becomes attached at `until`.
    pub fn new(instance: &str, device: &str, now: Millis, until: Option<Millis>) -> Self {
        Self {
            instance: instance.to_owned(),
            device: device.to_owned(),
            since: now,
            phase: Phase::Attaching {
                until,
                mapped: None,
            },
            delete_on_termination: false,
            card: 0,
            appears: None,
            device_late_ms: None,
        }
    }

    /// The state as DescribeVolumes says it.
    pub fn status(&self) -> &'static str {
        match self.phase {
            Phase::Attaching { .. } => "attaching",
            Phase::Attached => "attached",
            Phase::Detaching { .. } => "detaching",
            Phase::Busy { .. } => "busy",
        }
    }

    /// The state as the block-device mapping of DescribeInstances says it: it knows no `busy`, and may run ahead.
    pub fn mapping_status(&self, now: Millis) -> &'static str {
        match self.phase {
            Phase::Attaching {
                mapped: Some(at), ..
            } if at <= now => "attached",
            Phase::Busy { .. } => "detaching",
            _ => self.status(),
        }
    }

    /// When something is due.
    pub fn due(&self) -> Option<Millis> {
        match self.phase {
            Phase::Attaching { until, .. } | Phase::Detaching { until, .. } => until,
            Phase::Busy { again } => again,
            Phase::Attached => self.appears,
        }
    }

    /// Accepts a detach. True if the state changed: a detach of what is detaching already is answered and changes nothing.
    pub fn detach(&mut self, until: Option<Millis>, force: bool) -> bool {
        let begins = matches!(self.phase, Phase::Attaching { .. } | Phase::Attached);
        if begins || force {
            self.phase = Phase::Detaching { until, force };
            self.appears = None;
        }
        begins || force
    }

    /// Takes the step that is due.
    pub fn advance(&mut self, now: Millis) -> Step {
        if self.due().is_none_or(|d| d > now) {
            return Step::None;
        }
        match self.phase {
            Phase::Attaching { .. } => {
                self.phase = Phase::Attached;
                Step::Attached
            }
            Phase::Detaching { force, .. } => Step::Release { force },
            Phase::Busy { .. } => Step::Release { force: false },
            Phase::Attached => {
                self.appears = None;
                Step::Appear
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Attachment {
        Attachment::new("i-1", "/dev/xvdba", Millis(0), Some(Millis(10)))
    }

    #[test]
    fn attachment_advances_from_attaching_to_release() {
        let mut a = fresh();
        assert_eq!(
            (a.status(), a.advance(Millis(9))),
            ("attaching", Step::None)
        );
        assert_eq!(
            (a.advance(Millis(10)), a.status()),
            (Step::Attached, "attached")
        );
        assert_eq!(a.due(), None);
        assert!(a.detach(Some(Millis(20)), false));
        assert!(
            !a.detach(Some(Millis(90)), false),
            "a second detach changes nothing"
        );
        assert_eq!((a.status(), a.due()), ("detaching", Some(Millis(20))));
        assert_eq!(a.advance(Millis(20)), Step::Release { force: false });
        a.phase = Phase::Busy {
            again: Some(Millis(30)),
        };
        assert_eq!(
            (a.status(), a.mapping_status(Millis(21))),
            ("busy", "detaching")
        );
        assert_eq!(a.advance(Millis(30)), Step::Release { force: false });
    }

    #[test]
    fn stuck_attachment_advances_only_after_detach() {
        let mut a = Attachment::new("i-1", "/dev/xvdba", Millis(0), None);
        assert_eq!(a.advance(Millis(i64::MAX)), Step::None);
        assert!(a.detach(Some(Millis(5)), true));
        assert_eq!(a.advance(Millis(5)), Step::Release { force: true });
    }

    #[test]
    fn a_late_device_appears_after_attached() {
        let mut a = fresh();
        a.advance(Millis(10));
        a.appears = Some(Millis(15));
        assert_eq!(
            (a.advance(Millis(14)), a.advance(Millis(15))),
            (Step::None, Step::Appear)
        );
        assert_eq!(a.due(), None);
    }

    #[test]
    fn instance_block_device_mapping_can_show_attached_early() {
        let mut a = fresh();
        a.phase = Phase::Attaching {
            until: Some(Millis(10)),
            mapped: Some(Millis(4)),
        };
        assert_eq!(
            (a.status(), a.mapping_status(Millis(3))),
            ("attaching", "attaching")
        );
        assert_eq!(
            (a.status(), a.mapping_status(Millis(4))),
            ("attaching", "attached")
        );
    }
}

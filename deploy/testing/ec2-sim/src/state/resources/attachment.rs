//! The lifecycle of an attachment: attaching -> attached -> detaching (-> busy) -> gone.

use crate::time::Millis;
use serde::Serialize;

/// The phase of an attachment. A time of `None` means that the attachment is stuck until somebody
/// acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub(crate) enum Phase {
    /// AttachVolume was accepted; the device does not exist yet.
    Attaching {
        until: Option<Millis>,
        /// When DescribeInstances already shows `attached`, if that is earlier than
        /// DescribeVolumes.
        mapped: Option<Millis>,
    },
    Attached,
    Detaching {
        /// When the simulator removes the device.
        until: Option<Millis>,
        /// Whether the device is removed even if the guest holds it.
        force: bool,
    },
    /// The guest still holds the device after DetachVolume was accepted.
    Busy {
        /// When to check again.
        again: Option<Millis>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attachment {
    pub instance: String,
    pub device: String,
    /// When AttachVolume was accepted.
    pub since: Millis,
    pub(crate) phase: Phase,
    pub(crate) delete_on_termination: bool,
    /// The EBS card, for instance types with several.
    pub(crate) card: u32,
    /// When the device appears, if it has not appeared yet.
    pub(crate) appears: Option<Millis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttachmentEvent {
    Appear,
    /// The device must be removed, unless the guest holds it.
    Release {
        /// Whether to remove the device even if the guest holds it.
        force: bool,
    },
}

impl Attachment {
    /// Creates an attachment that becomes attached at `until`.
    pub fn new(instance: &str, device: &str, now: Millis, until: Option<Millis>) -> Self {
        Self {
            instance: instance.to_owned(),
            device: device.to_owned(),
            since: now,
            phase: Phase::Attaching { until, mapped: None },
            delete_on_termination: false,
            card: 0,
            appears: None,
        }
    }

    pub fn status(&self) -> &'static str {
        match self.phase {
            Phase::Attaching { .. } => "attaching",
            Phase::Attached => "attached",
            Phase::Detaching { .. } => "detaching",
            Phase::Busy { .. } => "busy",
        }
    }

    /// Returns the state in the block device mapping of DescribeInstances, which never shows `busy`
    /// and may show `attached` early.
    pub(crate) fn mapping_status(&self, now: Millis) -> &'static str {
        match self.phase {
            Phase::Attaching { mapped: Some(at), .. } if at <= now => "attached",
            Phase::Busy { .. } => "detaching",
            _ => self.status(),
        }
    }

    pub(crate) fn due(&self) -> Option<Millis> {
        match self.phase {
            Phase::Attaching { until, .. } | Phase::Detaching { until, .. } => until,
            Phase::Busy { again } => again,
            Phase::Attached => self.appears,
        }
    }

    /// Accepts a detach and returns whether the state changed. Repeating a detach changes nothing,
    /// unless the repetition is forced.
    pub fn detach(&mut self, until: Option<Millis>, force: bool) -> bool {
        let begins = matches!(self.phase, Phase::Attaching { .. } | Phase::Attached);
        if begins || force {
            self.phase = Phase::Detaching { until, force };
            self.appears = None;
        }
        begins || force
    }

    pub(crate) fn advance(&mut self, now: Millis) -> Option<AttachmentEvent> {
        self.due().filter(|due| *due <= now)?;
        Some(match self.phase {
            Phase::Attaching { .. } | Phase::Attached => {
                self.phase = Phase::Attached;
                self.appears = None;
                AttachmentEvent::Appear
            }
            Phase::Detaching { force, .. } => AttachmentEvent::Release { force },
            Phase::Busy { .. } => AttachmentEvent::Release { force: false },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_device_appears_after_attached() {
        let mut a = Attachment::new("i-1", "/dev/xvdba", Millis(0), Some(Millis(10)));
        a.advance(Millis(10));
        a.appears = Some(Millis(15));
        assert_eq!(
            (a.advance(Millis(14)), a.advance(Millis(15))),
            (None, Some(AttachmentEvent::Appear))
        );
        assert_eq!(a.due(), None);
    }
}

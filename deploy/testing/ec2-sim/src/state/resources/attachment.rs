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

/// Returns whether EC2 accepts the name: `/dev/sd[a-z]`, `/dev/sda1`, `/dev/sda2`, `/dev/xvd[a-z]`,
/// `/dev/xvd[a-c][a-z]`, `/dev/xvdd[a-x]`.
pub(crate) fn is_device_name(name: &str) -> bool {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    if matches!(name, "sda1" | "sda2") {
        return true;
    }
    let lower = |b: &u8| b.is_ascii_lowercase();
    if let Some(rest) = name.strip_prefix("xvd") {
        return match rest.as_bytes() {
            [a] => lower(a),
            [b'a'..=b'c', b] => lower(b),
            [b'd', b'a'..=b'x'] => true,
            _ => false,
        };
    }
    matches!(name.strip_prefix("sd").map(str::as_bytes), Some([a]) if lower(a))
}

/// Returns the name without its prefix, so that spellings compare equal: `sdb` and `xvdb` collide,
/// and so do `sda1` and `xvda1`.
pub(crate) fn device_suffix(name: &str) -> &str {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    name.strip_prefix("xvd").or_else(|| name.strip_prefix("sd")).unwrap_or(name)
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

    #[test]
    fn documented_device_names_are_valid_others_refused() {
        for good in
            "/dev/sda1 /dev/sda2 /dev/sdb /dev/sdz /dev/xvdb /dev/xvdaa /dev/xvdcz /dev/xvdda \
                     /dev/xvddx xvdba"
                .split(' ')
        {
            assert!(is_device_name(good), "{good}");
        }
        for bad in
            "/dev/sdk1,/dev/xvddy,/dev/xvdea,/dev/xvdb1,/dev/nvme1n1,/dev/sdaa,,/dev/,/dev/xvd"
                .split(',')
        {
            assert!(!is_device_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn sd_and_xvd_names_share_device_slot() {
        assert_eq!(device_suffix("/dev/sdb"), device_suffix("/dev/xvdb"));
        assert_ne!(device_suffix("/dev/xvdb"), device_suffix("/dev/xvdba"));
    }
}

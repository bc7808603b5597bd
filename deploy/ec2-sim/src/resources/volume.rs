//! A volume's life: creating -> available <-> in-use -> deleting -> gone; `error` when creation failed and is kept.

use super::attachment::{Attachment, Step};
use super::modification::{Modification, Shape};
use super::tags::Tags;
use super::volume_checks::Checks;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// How creation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Usable.
    Available,
    /// Kept in state `error`.
    Error,
    /// Not there any more, as after a key that cannot be used.
    Vanish,
}

/// Where a volume stands, apart from its attachments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum Life {
    /// Accepted.
    Creating {
        /// When it ends.
        until: Millis,
        /// How.
        outcome: Outcome,
    },
    /// `available`, or `in-use` when attached.
    Ready,
    /// `error`.
    Failed,
    /// Deleted, and for a moment still shown.
    Deleting {
        /// When it is no longer shown.
        until: Millis,
    },
}

/// What the volume was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Empty.
    Blank,
    /// A snapshot id.
    Snapshot(String),
    /// A volume id (CopyVolumes).
    Volume(String),
}

/// The background initialization of a volume that has a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Initialization {
    /// `default`, `provisioned-rate` or `volume-copy`.
    pub kind: String,
    /// When it began.
    pub from: Millis,
    /// When it is complete.
    pub until: Millis,
}

/// A volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Volume {
    /// `vol-…`.
    pub id: String,
    /// Size, type and performance in force.
    pub shape: Shape,
    /// Zone name.
    pub zone: String,
    /// What it was made from.
    pub origin: Origin,
    /// Encrypted (a flag: the bytes are not).
    pub encrypted: bool,
    /// The key that was named.
    pub kms_key: Option<String>,
    /// The Outpost that was named.
    pub outpost: Option<String>,
    /// The initialization rate that was asked for, MiB per second.
    pub initialization_rate: Option<u32>,
    /// When CreateVolume was accepted.
    pub created: Millis,
    /// Where it stands.
    pub life: Life,
    /// The instances that have it.
    pub attachments: Vec<Attachment>,
    /// The latest modification.
    pub modification: Option<Modification>,
    /// When modifications were accepted, the last of them at the end.
    pub modified: Vec<Millis>,
    /// Background initialization.
    pub initialization: Option<Initialization>,
    /// When the last snapshot of it was accepted.
    pub last_snapshot: Option<Millis>,
    /// Tags.
    pub tags: Tags,
    /// ModifyVolumeAttribute.
    pub auto_enable_io: bool,
    /// A volume that came with its instance, or another's: no image, no device, never a leak.
    pub root: bool,
    /// Made from a snapshot with fast restore enabled in this zone.
    pub restored_fast: bool,
    /// What EC2's checks of it find.
    #[serde(default)]
    pub checks: Checks,
}

/// Something that happened to a volume because its time had come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It became available.
    Created,
    /// Creation failed; it stays as `error`.
    Failed,
    /// It is no longer there.
    Gone,
    /// The instance now has it.
    Attached(String),
    /// Its device, which was late, must appear on the instance.
    Appear(String),
    /// The instance must release it.
    Release {
        /// The instance.
        instance: String,
        /// Without asking the guest.
        force: bool,
    },
    /// The new shape is in force.
    Reshaped,
}

impl Volume {
    /// A gp3 volume of nobody's making, that is there and has neither image nor device.
    pub fn plain(id: String, size: u32, zone: &str, now: Millis) -> Self {
        Self {
            id,
            shape: Shape {
                size,
                iops: Some(3_000),
                throughput: Some(125),
                volume_type: "gp3".to_owned(),
                multi_attach: false,
            },
            zone: zone.to_owned(),
            origin: Origin::Blank,
            encrypted: false,
            kms_key: None,
            outpost: None,
            initialization_rate: None,
            created: now,
            life: Life::Ready,
            attachments: Vec::new(),
            modification: None,
            modified: Vec::new(),
            initialization: None,
            last_snapshot: None,
            tags: Tags::new(),
            auto_enable_io: false,
            root: true,
            restored_fast: false,
            checks: Checks::default(),
        }
    }

    /// `creating`, `available`, `in-use`, `deleting`, `error`.
    pub fn status(&self) -> &'static str {
        match self.life {
            Life::Creating { .. } => "creating",
            Life::Ready if self.attachments.is_empty() => "available",
            Life::Ready => "in-use",
            Life::Failed => "error",
            Life::Deleting { .. } => "deleting",
        }
    }

    /// Whether calls that name it still find it. DeleteVolume does not find what is already deleting.
    pub fn deleting(&self) -> bool {
        matches!(self.life, Life::Deleting { .. })
    }

    /// The attachment to an instance.
    pub fn attachment(&self, instance: &str) -> Option<&Attachment> {
        self.attachments.iter().find(|a| a.instance == instance)
    }

    /// The attachment to an instance.
    pub fn attachment_mut(&mut self, instance: &str) -> Option<&mut Attachment> {
        self.attachments.iter_mut().find(|a| a.instance == instance)
    }

    /// 0 to 100.
    pub fn initialized_percent(&self, now: Millis) -> u64 {
        match &self.initialization {
            None => 100,
            Some(i) if i.until <= now => 100,
            Some(i) => {
                (now.since(i.from).saturating_mul(100) / i.until.since(i.from).max(1)).min(99)
            }
        }
    }

    /// When something is due.
    pub fn due(&self) -> Option<Millis> {
        let life = match self.life {
            Life::Creating { until, .. } | Life::Deleting { until } => Some(until),
            Life::Ready | Life::Failed => None,
        };
        let modification = self.modification.as_ref().and_then(Modification::due);
        self.attachments
            .iter()
            .filter_map(Attachment::due)
            .chain(life)
            .chain(modification)
            .min()
    }

    /// Takes all steps that are due, in no more than one step per part; the caller asks again until nothing is due.
    pub fn advance(&mut self, now: Millis) -> Vec<Event> {
        let mut events = Vec::new();
        match self.life {
            Life::Creating { until, outcome } if until <= now => match outcome {
                Outcome::Available => {
                    self.life = Life::Ready;
                    events.push(Event::Created);
                }
                Outcome::Error => {
                    self.life = Life::Failed;
                    events.push(Event::Failed);
                }
                Outcome::Vanish => events.push(Event::Gone),
            },
            Life::Deleting { until } if until <= now => events.push(Event::Gone),
            _ => {}
        }
        if let Some(m) = &mut self.modification {
            m.advance(now);
            if m.reshape(now) {
                self.shape = m.target.clone();
                events.push(Event::Reshaped);
            }
        }
        for a in &mut self.attachments {
            match a.advance(now) {
                Step::None => {}
                Step::Attached => events.push(Event::Attached(a.instance.clone())),
                Step::Appear => events.push(Event::Appear(a.instance.clone())),
                Step::Release { force } => events.push(Event::Release {
                    instance: a.instance.clone(),
                    force,
                }),
            }
        }
        events
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::resources::modification::State as ModificationState;

    pub(crate) fn fresh(outcome: Outcome) -> Volume {
        Volume {
            id: "vol-0123456789abcdef0".to_owned(),
            shape: Shape {
                size: 1,
                iops: Some(3000),
                throughput: Some(125),
                volume_type: "gp3".to_owned(),
                multi_attach: false,
            },
            zone: "us-east-1a".to_owned(),
            origin: Origin::Blank,
            encrypted: false,
            kms_key: None,
            outpost: None,
            initialization_rate: None,
            created: Millis(0),
            life: Life::Creating {
                until: Millis(10),
                outcome,
            },
            attachments: Vec::new(),
            modification: None,
            modified: Vec::new(),
            initialization: None,
            last_snapshot: None,
            tags: Tags::default(),
            auto_enable_io: false,
            root: false,
            restored_fast: false,
            checks: Checks::default(),
        }
    }

    #[test]
    fn volume_advances_from_creating_to_gone() {
        let mut v = fresh(Outcome::Available);
        assert_eq!((v.status(), v.advance(Millis(9))), ("creating", vec![]));
        assert_eq!(
            (v.advance(Millis(10)), v.status()),
            (vec![Event::Created], "available")
        );
        v.attachments.push(Attachment::new(
            "i-1",
            "/dev/xvdba",
            Millis(10),
            Some(Millis(20)),
        ));
        assert_eq!(
            v.status(),
            "in-use",
            "in-use from the moment that the attach is accepted"
        );
        assert_eq!(v.due(), Some(Millis(20)));
        assert_eq!(
            v.advance(Millis(20)),
            vec![Event::Attached("i-1".to_owned())]
        );
        v.attachments.clear();
        v.life = Life::Deleting { until: Millis(30) };
        assert_eq!(
            (v.status(), v.advance(Millis(30))),
            ("deleting", vec![Event::Gone])
        );
    }

    #[test]
    fn failing_creation_ends_in_error_or_vanishes() {
        let mut v = fresh(Outcome::Error);
        assert_eq!(
            (v.advance(Millis(10)), v.status()),
            (vec![Event::Failed], "error")
        );
        assert_eq!(
            fresh(Outcome::Vanish).advance(Millis(10)),
            vec![Event::Gone]
        );
    }

    #[test]
    fn new_shape_applies_when_optimizing_begins() {
        let mut v = fresh(Outcome::Available);
        v.advance(Millis(10));
        let mut target = v.shape.clone();
        target.size = 5;
        v.modification = Some(Modification {
            original: v.shape.clone(),
            target,
            started: Millis(10),
            optimizing_at: Millis(20),
            completed_at: Millis(30),
            fails: false,
            state: ModificationState::Modifying,
            reshape_at: Millis(20),
            reshaped: false,
        });
        v.advance(Millis(19));
        assert_eq!(v.shape.size, 1);
        assert_eq!(v.advance(Millis(20)), vec![Event::Reshaped]);
        assert_eq!((v.shape.size, v.due()), (5, Some(Millis(30))));
    }

    #[test]
    fn initialization_progresses_with_time() {
        let mut v = fresh(Outcome::Available);
        v.initialization = Some(Initialization {
            kind: "default".to_owned(),
            from: Millis(0),
            until: Millis(200),
        });
        assert_eq!(v.initialized_percent(Millis(100)), 50);
        assert_eq!(v.initialized_percent(Millis(200)), 100);
    }
}

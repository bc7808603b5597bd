//! The lifecycle of a volume: creating -> available <-> in-use -> deleting -> gone; `error` if the
//! creation failed and the volume is kept.

use super::{Attachment, AttachmentEvent, Modification, ModificationState, Shape, Tags};
use crate::time::Millis;
use crate::wire::ApiError;
use serde::{Deserialize, Serialize};

/// The maximum number of instances to which a Multi-Attach volume can be attached at once.
pub(crate) const MAX_MULTI_ATTACH: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CreateOutcome {
    Available,
    /// The volume is kept in state `error`.
    Error,
    /// The volume disappears, for example because its key cannot be used.
    Vanish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub(crate) enum VolumeState {
    Creating {
        until: Millis,
        outcome: CreateOutcome,
    },
    /// `available`, or `in-use` if the volume is attached.
    Ready,
    Failed,
    /// Deleted, but still shown for a moment.
    Deleting {
        until: Millis,
    },
}

/// The source of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// No source: the volume is empty.
    Blank,
    /// A snapshot, by id.
    Snapshot(String),
    /// Another volume, by id (CopyVolumes).
    Volume(String),
}

/// The background initialization of a volume that has a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Initialization {
    /// `default`, `provisioned-rate` or `volume-copy`.
    pub kind: String,
    pub from: Millis,
    pub(crate) until: Millis,
}

/// The results of EC2's checks of a volume (EBS user guide, "Amazon EBS volume status checks").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct VolumeChecks {
    /// Whether EC2 has disabled I/O because the data may be inconsistent.
    pub(crate) io_disabled: bool,
    pub(crate) performance: Performance,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Performance {
    #[default]
    Normal,
    Degraded,
    SeverelyDegraded,
    /// No I/O completes.
    Stalled,
}

impl VolumeChecks {
    /// Returns EC2's overall status.
    pub(crate) fn status(self) -> &'static str {
        match (self.io_disabled, self.performance) {
            (true, _) | (_, Performance::Stalled) => "impaired",
            (false, Performance::Degraded | Performance::SeverelyDegraded) => "warning",
            (false, Performance::Normal) => "ok",
        }
    }
}

/// A volume.
#[derive(Debug, Clone, Serialize)]
pub struct Volume {
    /// The volume's id, `vol-…`.
    pub id: String,
    /// The current size, type and performance.
    pub shape: Shape,
    pub(crate) zone: String,
    /// The source of the volume.
    pub origin: Origin,
    /// Whether the volume is encrypted (a flag only: the bytes are not encrypted).
    pub encrypted: bool,
    pub(crate) kms_key: Option<String>,
    pub(crate) outpost: Option<String>,
    pub(crate) created: Millis,
    pub(crate) life: VolumeState,
    /// The attachments to instances.
    pub attachments: Vec<Attachment>,
    /// The latest modification.
    pub modification: Option<Modification>,
    /// The times at which modifications were accepted, in ascending order.
    pub(crate) modified: Vec<Millis>,
    pub(crate) initialization: Option<Initialization>,
    /// The requested rate of the initialization, in MiB/s.
    pub(crate) initialization_rate: Option<u32>,
    pub(crate) last_snapshot: Option<Millis>,
    /// The volume's tags.
    pub tags: Tags,
    /// Whether the volume came with its instance or belongs to somebody else: such a volume has no
    /// image and no device, and never counts as a leak.
    pub root: bool,
    pub(crate) checks: VolumeChecks,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VolumeEvent {
    Gone,
    Attachment(String, AttachmentEvent),
    Reshaped,
}

impl Volume {
    /// Creates an available gp3 volume that comes from no request and has neither image nor device.
    pub(crate) fn plain(id: String, size: u32, zone: &str, now: Millis) -> Self {
        Self {
            id,
            shape: Shape::gp3(size),
            zone: zone.to_owned(),
            origin: Origin::Blank,
            encrypted: false,
            kms_key: None,
            outpost: None,
            created: now,
            life: VolumeState::Ready,
            attachments: Vec::new(),
            modification: None,
            modified: Vec::new(),
            initialization: None,
            initialization_rate: None,
            last_snapshot: None,
            tags: Tags::new(),
            root: true,
            checks: VolumeChecks::default(),
        }
    }

    /// Returns `creating`, `available`, `in-use`, `deleting` or `error`.
    pub fn status(&self) -> &'static str {
        match self.life {
            VolumeState::Creating { .. } => "creating",
            VolumeState::Ready if self.attachments.is_empty() => "available",
            VolumeState::Ready => "in-use",
            VolumeState::Failed => "error",
            VolumeState::Deleting { .. } => "deleting",
        }
    }

    /// Returns EC2's refusal of a call for which the volume is in a wrong state.
    pub(crate) fn incorrect_state(&self) -> ApiError {
        let message = format!("Volume '{}' is in the '{}' state.", self.id, self.status());
        ApiError::client("IncorrectState", message)
    }

    /// Returns whether the volume is being deleted. Calls that name the volume, such as
    /// DeleteVolume, then no longer find it.
    pub fn deleting(&self) -> bool {
        matches!(self.life, VolumeState::Deleting { .. })
    }

    /// Returns the attachment to an instance.
    pub fn attachment(&self, instance: &str) -> Option<&Attachment> {
        self.attachments.iter().find(|a| a.instance == instance)
    }

    pub(crate) fn attachment_mut(&mut self, instance: &str) -> Option<&mut Attachment> {
        self.attachments.iter_mut().find(|a| a.instance == instance)
    }

    /// Returns the progress of the initialization, from 0 to 100.
    pub(crate) fn initialized_percent(&self, now: Millis) -> u64 {
        match &self.initialization {
            None => 100,
            Some(i) if i.until <= now => 100,
            Some(i) => {
                (now.since(i.from).saturating_mul(100) / i.until.since(i.from).max(1)).min(99)
            }
        }
    }

    pub(crate) fn due(&self) -> Option<Millis> {
        let life = match self.life {
            VolumeState::Creating { until, .. } | VolumeState::Deleting { until } => Some(until),
            VolumeState::Ready | VolumeState::Failed => None,
        };
        let modification = self.modification.as_ref().and_then(Modification::due);
        self.attachments.iter().filter_map(Attachment::due).chain(life).chain(modification).min()
    }

    /// Performs the transitions that are due, at most one for each part. The caller repeats the
    /// call until nothing is due.
    pub(crate) fn advance(&mut self, now: Millis) -> Vec<VolumeEvent> {
        let mut events = Vec::new();
        match self.life {
            VolumeState::Creating { until, outcome } if until <= now => match outcome {
                CreateOutcome::Available => self.life = VolumeState::Ready,
                CreateOutcome::Error => self.life = VolumeState::Failed,
                CreateOutcome::Vanish => events.push(VolumeEvent::Gone),
            },
            VolumeState::Deleting { until } if until <= now => events.push(VolumeEvent::Gone),
            _ => {}
        }
        if let Some(m) = &mut self.modification
            && m.advance(now) == Some(ModificationState::Optimizing)
        {
            self.shape = m.target.clone();
            events.push(VolumeEvent::Reshaped);
        }
        for a in &mut self.attachments {
            let event = a.advance(now);
            events.extend(event.map(|event| VolumeEvent::Attachment(a.instance.clone(), event)));
        }
        events
    }
}

/// The use of a token. A token stays used when creation fails later or the volume is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TokenUse {
    pub volume: String,
    /// The parameters, in a form that depends neither on the order of tags nor on how the request
    /// named the zone.
    pub(crate) fingerprint: String,
    pub at: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_check_decides_volume_status() {
        use Performance::{Degraded, Normal, SeverelyDegraded, Stalled};
        for (io_disabled, performance, status) in [
            (false, Normal, "ok"),
            (false, Degraded, "warning"),
            (false, SeverelyDegraded, "warning"),
            (false, Stalled, "impaired"),
            (true, Normal, "impaired"),
            (true, Degraded, "impaired"),
        ] {
            let checks = VolumeChecks { io_disabled, performance };
            assert_eq!(checks.status(), status, "{checks:?}");
        }
    }
}

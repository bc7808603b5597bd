//! The lifecycle of a modification: modifying -> optimizing -> completed, or failed.

use crate::time::Millis;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// The size, in GiB.
    pub size: u32,
    /// The operations per second, for types that have such a number.
    pub iops: Option<u32>,
    /// The throughput in MiB per second, for gp3.
    pub(crate) throughput: Option<u32>,
    /// The volume type: gp3, io2, …
    pub(crate) volume_type: String,
    pub(crate) multi_attach: bool,
}

impl Shape {
    /// Returns a gp3 volume of `size` GiB with the performance that EC2 gives without a request.
    pub(crate) fn gp3(size: u32) -> Self {
        Self {
            size,
            iops: Some(3_000),
            throughput: Some(125),
            volume_type: "gp3".to_owned(),
            multi_attach: false,
        }
    }
}

/// The state of a modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModificationState {
    /// The guest does not see the change yet.
    Modifying,
    /// Size and settings are in force; EC2 still moves the data.
    Optimizing,
    /// All of the data is where the change wants it.
    Completed,
    /// The modification failed; the volume is unchanged.
    Failed,
}

/// The latest modification of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Modification {
    pub(crate) original: Shape,
    pub target: Shape,
    /// When the modification was accepted.
    pub started: Millis,
    pub(crate) optimizing_at: Millis,
    pub(crate) completed_at: Millis,
    /// Whether the modification fails at `optimizing_at`.
    pub(crate) fails: bool,
    pub state: ModificationState,
}

impl Modification {
    /// Returns the progress, from 0 to 100.
    pub(crate) fn progress(&self, now: Millis) -> u64 {
        match self.state {
            ModificationState::Modifying | ModificationState::Failed => 0,
            ModificationState::Completed => 100,
            ModificationState::Optimizing => {
                let whole = self.completed_at.since(self.optimizing_at).max(1);
                (now.since(self.optimizing_at).saturating_mul(100) / whole).min(99)
            }
        }
    }

    pub(crate) fn due(&self) -> Option<Millis> {
        match self.state {
            ModificationState::Modifying => Some(self.optimizing_at),
            ModificationState::Optimizing => Some(self.completed_at),
            ModificationState::Completed | ModificationState::Failed => None,
        }
    }

    /// Performs the transition that is due. Returns the new state, if there was a transition.
    pub(crate) fn advance(&mut self, now: Millis) -> Option<ModificationState> {
        if self.due().is_none_or(|d| d > now) {
            return None;
        }
        self.state = match self.state {
            ModificationState::Modifying if self.fails => ModificationState::Failed,
            ModificationState::Modifying => ModificationState::Optimizing,
            _ => ModificationState::Completed,
        };
        Some(self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modification_passes_optimizing_and_shows_progress() {
        let mut m = Modification {
            original: Shape::gp3(1),
            target: Shape::gp3(2),
            started: Millis(0),
            optimizing_at: Millis(10),
            completed_at: Millis(110),
            fails: false,
            state: ModificationState::Modifying,
        };
        assert_eq!((m.advance(Millis(9)), m.progress(Millis(9))), (None, 0));
        assert_eq!(m.advance(Millis(500)), Some(ModificationState::Optimizing));
        assert_eq!(m.progress(Millis(60)), 50);
        assert_eq!(m.progress(Millis(1000)), 99);
        assert_eq!(m.advance(Millis(110)), Some(ModificationState::Completed));
        assert_eq!((m.progress(Millis(110)), m.due()), (100, None));
    }
}

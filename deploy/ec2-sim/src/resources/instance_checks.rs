//! What EC2's checks of a running instance find (EC2 user guide, "Status checks for Amazon EC2 instances").

use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// The result of one check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It passes.
    #[default]
    Ok,
    /// It fails.
    Impaired,
    /// It has not been made yet.
    Initializing,
    /// It could not be made.
    InsufficientData,
}

impl Outcome {
    /// EC2's word for the status.
    pub fn status(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Impaired => "impaired",
            Self::Initializing => "initializing",
            Self::InsufficientData => "insufficient-data",
        }
    }

    /// EC2's word for the reachability behind it.
    pub fn reachability(self) -> &'static str {
        match self {
            Self::Ok => "passed",
            Self::Impaired => "failed",
            Self::Initializing | Self::InsufficientData => self.status(),
        }
    }
}

/// One check: its result, and since when it fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The result.
    pub outcome: Outcome,
    /// Since when it fails.
    pub impaired_since: Option<Millis>,
}

impl Check {
    /// The same check with that result now.
    pub fn becomes(&mut self, outcome: Outcome, now: Millis) {
        let since = self.impaired_since.unwrap_or(now);
        *self = Self {
            outcome,
            impaired_since: (outcome == Outcome::Impaired).then_some(since),
        };
    }
}

/// All checks of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Of the host, its network and its power.
    pub system: Check,
    /// Of the guest.
    pub instance: Check,
    /// Of the volumes that are attached.
    pub attached_ebs: Check,
}

/// Results that are to be found from now on; those that are not given stay.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Findings {
    /// Of the host.
    pub system: Option<Outcome>,
    /// Of the guest.
    pub instance: Option<Outcome>,
    /// Of the volumes.
    pub attached_ebs: Option<Outcome>,
}

impl Checks {
    /// Takes over what is found now.
    pub fn find(&mut self, findings: Findings, now: Millis) {
        let each = [
            (&mut self.system, findings.system),
            (&mut self.instance, findings.instance),
            (&mut self.attached_ebs, findings.attached_ebs),
        ];
        for (check, found) in each {
            if let Some(outcome) = found {
                check.becomes(outcome, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any other outcome clears the time.
    #[test]
    fn impaired_since_keeps_first_failure_time() {
        let mut checks = Checks::default();
        let system = |outcome| Findings {
            system: Some(outcome),
            ..Findings::default()
        };
        let rows = [
            (Outcome::Impaired, 5, Some(5)),
            (Outcome::Impaired, 9, Some(5)),
            (Outcome::Ok, 10, None),
            (Outcome::Impaired, 11, Some(11)),
            (Outcome::InsufficientData, 12, None),
        ];
        for (outcome, now, since) in rows {
            checks.find(system(outcome), Millis(now));
            assert_eq!(checks.system.outcome, outcome);
            assert_eq!(checks.system.impaired_since, since.map(Millis), "{now}");
            assert_eq!(checks.instance, Check::default(), "the others stay");
        }
    }
}

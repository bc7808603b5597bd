//! The results of EC2's status checks of a running instance (EC2 user guide, "Status checks for
//! Amazon EC2 instances").

use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// The result of one check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    #[default]
    Ok,
    Impaired,
    /// The check was not made yet.
    Initializing,
    /// The check could not be made.
    InsufficientData,
}

impl Outcome {
    /// Returns EC2's name of the status.
    pub fn status(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Impaired => "impaired",
            Self::Initializing => "initializing",
            Self::InsufficientData => "insufficient-data",
        }
    }

    /// Returns EC2's name of the reachability that belongs to the status.
    pub fn reachability(self) -> &'static str {
        match self {
            Self::Ok => "passed",
            Self::Impaired => "failed",
            Self::Initializing | Self::InsufficientData => self.status(),
        }
    }
}

/// One check: its result, and the time since which it fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Check {
    pub outcome: Outcome,
    pub impaired_since: Option<Millis>,
}

impl Check {
    pub fn becomes(&mut self, outcome: Outcome, now: Millis) {
        let since = self.impaired_since.unwrap_or(now);
        *self = Self { outcome, impaired_since: (outcome == Outcome::Impaired).then_some(since) };
    }
}

/// All checks of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// The check of the host, with its network and power.
    pub system: Check,
    /// The check of the guest.
    pub instance: Check,
    /// The check of the attached volumes.
    pub attached_ebs: Check,
}

/// Results to report from now on; a result that is not given stays.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Findings {
    pub system: Option<Outcome>,
    pub instance: Option<Outcome>,
    pub attached_ebs: Option<Outcome>,
}

impl Checks {
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
        let system = |outcome| Findings { system: Some(outcome), ..Findings::default() };
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

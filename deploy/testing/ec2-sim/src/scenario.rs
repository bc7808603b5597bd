//! The scenario file: the initial state of the simulation.

use crate::faults::FaultRule;
use crate::iam::IamSetting;
use crate::limits::{Limits, Quotas};
use crate::state::consistency::ConsistencySetting;
use crate::state::resources::{Zone, ZoneKind, ZoneState};
use crate::time::LatencyChange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A scenario. `README.md` describes each key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// The seed of ids, latencies and probabilities.
    pub seed: u64,
    /// The latency profile.
    pub profile: String,
    /// The account.
    pub account: String,
    /// The Region.
    pub region: String,
    /// The zones of that Region, as this account names them.
    pub zones: Vec<Zone>,
    /// The instances of that Region.
    pub instances: Vec<InstanceSeed>,
    /// The limits on request rates.
    pub limits: Limits,
    /// The other limits.
    pub quotas: Quotas,
    /// The staleness of reads.
    pub consistency: ConsistencySetting,
    /// Overrides of the latency profile.
    pub latency: LatencyChange,
    /// The fault rules at the start.
    pub faults: Vec<FaultRule>,
    /// Users and roles with their policies.
    pub iam: IamSetting,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InstanceSeed {
    pub id: String,
    #[serde(rename = "type")]
    pub(crate) instance_type: String,
    pub zone: String,
    /// `running` or `stopped`.
    pub state: String,
    /// The device names of 1 GiB data volumes that come from the instance's launch template.
    pub(crate) launch_disks: Vec<String>,
    pub(crate) outpost: Option<String>,
    pub tags: BTreeMap<String, String>,
    /// Device names that are in use though DescribeInstances does not list them.
    pub(crate) hidden_devices: Vec<String>,
    pub(crate) hibernation: bool,
}

impl Default for InstanceSeed {
    fn default() -> Self {
        Self {
            id: String::new(),
            instance_type: "m5.large".to_owned(),
            zone: String::new(),
            state: "running".to_owned(),
            launch_disks: Vec::new(),
            outpost: None,
            tags: BTreeMap::new(),
            hidden_devices: Vec::new(),
            hibernation: false,
        }
    }
}

impl InstanceSeed {
    pub(crate) fn check(&self, zones: &[Zone]) -> Result<(), ScenarioError> {
        let bad = |what: &str| Err(bad_instance(&self.id, what));
        if !crate::state::well_formed(&self.id, "i") {
            return bad("the id must be \"i-\" and 17 lower-case hexadecimal digits");
        }
        if zones.iter().all(|z| z.name != self.zone) {
            return bad(&format!("its zone {:?} is not one of the region's zones", self.zone));
        }
        if !matches!(self.state.as_str(), "running" | "stopped") {
            return bad(&format!("its state {:?} must be running or stopped", self.state));
        }
        Ok(())
    }
}

impl Default for Scenario {
    fn default() -> Self {
        let zone = |name: &str, id: &str| Zone {
            name: name.to_owned(),
            id: id.to_owned(),
            state: ZoneState::Available,
            kind: ZoneKind::Availability,
        };
        let instance = |id: &str, zone: &str| InstanceSeed {
            id: id.to_owned(),
            zone: zone.to_owned(),
            ..InstanceSeed::default()
        };
        Self {
            seed: 1,
            profile: "fast".to_owned(),
            account: "111122223333".to_owned(),
            region: "us-east-1".to_owned(),
            zones: vec![zone("us-east-1a", "use1-az6"), zone("us-east-1b", "use1-az1")],
            instances: vec![
                instance("i-0aaaaaaaaaaaaaaa1", "us-east-1a"),
                instance("i-0bbbbbbbbbbbbbbb2", "us-east-1b"),
            ],
            limits: Limits::default(),
            quotas: Quotas::default(),
            consistency: ConsistencySetting::default(),
            latency: LatencyChange::default(),
            faults: Vec::new(),
            iam: IamSetting::default(),
        }
    }
}

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(pub(crate) String);

pub(crate) fn bad_instance(id: &str, why: &str) -> ScenarioError {
    ScenarioError(format!("scenario: instance {id}: {why}"))
}

impl Scenario {
    /// Reads a scenario file: JSON if the name ends in `.json`, otherwise TOML.
    ///
    /// # Errors
    /// Fails if the file cannot be read, has an unknown key, or contradicts itself.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| ScenarioError(format!("cannot read the scenario {name}: {e}")))?;
        let parsed = if path.extension().is_some_and(|e| e == "json") {
            serde_json::from_str::<Self>(&text).map_err(|e| e.to_string())
        } else {
            toml::from_str::<Self>(&text).map_err(|e| e.to_string())
        };
        let scenario =
            parsed.map_err(|e| ScenarioError(format!("the scenario {name} is not valid: {e}")))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Checks that the scenario does not contradict itself.
    ///
    /// # Errors
    /// Returns the first contradiction.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let bad = |why: String| Err(ScenarioError(format!("scenario: {why}")));
        if let Err(why) = self.iam.check() {
            return bad(format!("iam: {why}"));
        }
        if self.account.len() != 12 || !self.account.bytes().all(|b| b.is_ascii_digit()) {
            return bad(format!("account {:?} must be twelve digits", self.account));
        }
        if self.zones.is_empty() {
            return bad(format!("region {} has no zones", self.region));
        }
        let mut seen = std::collections::BTreeSet::new();
        for instance in &self.instances {
            instance.check(&self.zones)?;
            if !seen.insert(&instance.id) {
                return Err(bad_instance(&instance.id, "it is there twice"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_example_parses_as_valid_scenario() {
        let readme = include_str!("../README.md");
        let toml = readme
            .split_once("```toml\n")
            .and_then(|(_, rest)| rest.split_once("\n```"))
            .expect("a toml block")
            .0;
        let s: Scenario = toml::from_str(toml).expect("parses");
        s.check().expect("consistent");
        assert_eq!(s.instances.len(), 1);
        assert_eq!(s.faults.len(), 1);
    }

    #[test]
    fn unknown_keys_and_invalid_values_are_refused() {
        for (text, words) in [
            ("sed = 1", "unknown field"),
            ("[[instances]]\nid = \"i-1\"\nzone = \"us-east-1a\"", "17 lower-case"),
            ("[[instances]]\nid = \"i-0aaaaaaaaaaaaaaa1\"\nzone = \"mars\"", "zone"),
            ("account = \"1\"", "twelve digits"),
            ("zones = [{ name = \"a\", id = \"b\", state = \"sleepy\" }]", "unknown variant"),
            ("zones = []\ninstances = []", "no zones"),
        ] {
            let e = match toml::from_str::<Scenario>(text) {
                Err(e) => e.to_string(),
                Ok(s) => s.check().expect_err(text).to_string(),
            };
            assert!(e.contains(words), "{text}: {e}");
        }
    }
}

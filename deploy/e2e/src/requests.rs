//! The driver's requests to EC2, from the simulator's journal.

use std::collections::BTreeMap;
use std::time::Duration;

use ebs_csi_sandbox::Simulator;
use ebs_csi_sandbox::demo::{DescribedVolume, Ec2};
use serde_json::{Value, json};

/// The journal of a simulator.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a> {
    simulator: &'a Simulator,
    ec2: Ec2<'a>,
}

impl<'a> Requests<'a> {
    /// Returns access to this simulator's journal.
    pub fn new(simulator: &'a Simulator) -> Self {
        Self { simulator, ec2: Ec2::new(simulator) }
    }

    /// Returns the number of the last request so far.
    pub async fn mark(&self) -> u64 {
        self.ec2.last().await.expect("the simulator answers")
    }

    /// Returns the requests after `mark`.
    pub async fn since(&self, mark: u64) -> Vec<Value> {
        self.ec2.journal(mark).await.expect("the simulator answers")
    }

    /// Returns the requests after `mark` that changed something or tried to: all but Describe
    /// calls, GetCallerIdentity and dry runs.
    pub async fn mutations(&self, mark: u64) -> Vec<Value> {
        let mut records = self.since(mark).await;
        records.retain(|record| {
            let action = record["action"].as_str().unwrap_or_default();
            !action.starts_with("Describe")
                && !action.starts_with("GetCallerIdentity")
                && record["parameters"]["DryRun"] != "true"
        });
        records
    }

    /// Returns how often each mutating action after `mark` had an effect.
    pub async fn effective(&self, mark: u64) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for record in self.mutations(mark).await {
            if record["effects"].as_array().is_some_and(|all| !all.is_empty()) {
                let action = record["action"].as_str().unwrap_or_default();
                *counts.entry(action.to_owned()).or_default() += 1;
            }
        }
        counts
    }

    /// Waits until the driver has sent `action` after `mark`, at most 20 s.
    pub async fn until(&self, mark: u64, action: &str) -> Value {
        for _ in 0..10_000 {
            let mut records = self.mutations(mark).await.into_iter();
            if let Some(found) = records.find(|record| record["action"] == action) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let sent = self.mutations(mark).await;
        panic!("the driver did not send {action} in 20 s; it sent {sent:#?}");
    }

    /// Returns EC2's view of a volume.
    pub async fn volume(&self, id: &str) -> Option<DescribedVolume> {
        self.ec2.volume(id).await.expect("the simulator answers")
    }

    /// Returns whether EC2 shows the volume attached to an instance.
    pub async fn holds(&self, volume: &str, instance: &str) -> bool {
        let shown = self.volume(volume).await;
        shown.is_some_and(|shown| shown.instances.iter().any(|of| of == instance))
    }

    /// Returns how many volumes have this name tag.
    pub async fn named(&self, name: &str) -> usize {
        self.ec2.volumes("tag:CSIVolumeName", name).await.expect("the simulator answers").len()
    }

    /// Adds a fault rule.
    pub async fn fault(&self, rule: Value) {
        self.ec2.fault(rule).await.expect("the simulator takes it");
    }

    /// Removes all fault rules.
    pub async fn no_faults(&self) {
        self.ec2.no_faults().await.expect("the simulator answers");
    }

    /// Makes the simulator refuse connections for `ms` milliseconds.
    pub async fn outage(&self, ms: u64) {
        let posted = self.simulator.post("/v1/outage", &json!({ "for_ms": ms })).await;
        posted.expect("the simulator answers");
    }
}

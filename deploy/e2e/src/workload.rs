//! The callers' use of volumes while the controller is disturbed, and the check that EC2 holds in
//! the end exactly the objects that the callers know of.

use std::collections::{BTreeSet, HashMap};

use ebs_csi_sandbox::co::{Claim, CoError, Source};
use ebs_csi_sandbox::{Co, Simulator};
use serde_json::Value;

use crate::requests::Requests;
use crate::seeded_random::SeededRandom;

/// The objects that a workload leaves behind on purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Name and id.
    pub volumes: BTreeSet<(String, String)>,
    /// Name and id.
    pub snapshots: BTreeSet<(String, String)>,
    /// Volume and instance.
    pub attachments: BTreeSet<(String, String)>,
}

impl Kept {
    /// Merges both sets.
    pub fn merge(mut self, other: Self) -> Self {
        self.volumes.extend(other.volumes);
        self.snapshots.extend(other.snapshots);
        self.attachments.extend(other.attachments);
        self
    }

    /// Returns the objects that the simulator holds, without root volumes.
    pub async fn found(simulator: &Simulator) -> Self {
        let state = simulator.get("/v1/state").await.expect("the simulator answers");
        let realm = &state["realms"][0];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut found = Self::default();
        for volume in realm["volumes"].as_array().into_iter().flatten() {
            if volume["root"] == true || volume["status"] == "deleting" {
                continue;
            }
            let id = text(&volume["id"]);
            for attachment in volume["attachments"].as_array().into_iter().flatten() {
                found.attachments.insert((id.clone(), text(&attachment["instance"])));
            }
            found.volumes.insert((text(&volume["tags"]["CSIVolumeName"]), id));
        }
        for snapshot in realm["snapshots"].as_array().into_iter().flatten() {
            let name = text(&snapshot["tags"]["CSIVolumeSnapshotName"]);
            found.snapshots.insert((name, text(&snapshot["id"])));
        }
        found
    }

    /// Detaches and deletes everything.
    ///
    /// # Errors
    /// Returns the driver's last answer.
    pub async fn clear(self, co: &Co) -> Result<(), CoError> {
        for (volume, node) in &self.attachments {
            co.detach(volume, node).await?;
        }
        for (_, volume) in &self.volumes {
            co.delete(volume).await?;
        }
        for (_, snapshot) in &self.snapshots {
            co.delete_snapshot(snapshot).await?;
        }
        Ok(())
    }
}

/// Runs one workload: creates, moves, expands and modifies a volume, takes and restores snapshots
/// of it, and deletes or keeps it. Compares each answer with EC2.
///
/// # Errors
/// Returns the driver's last answer, or an error for an answer that does not match EC2.
pub async fn run_workload(
    co: Co,
    requests: Requests<'_>,
    nodes: &[String],
    name: &str,
    random: SeededRandom,
) -> Result<Kept, CoError> {
    let mut kept = Kept::default();
    let mut volume = co.create(&Claim::filesystem(name, "ext4", 8)).await?;
    let id = volume.id.clone();
    for _ in 0..1 + random.below(4) {
        match random.below(4) {
            0 | 1 => {
                let node = &nodes[usize::try_from(random.below(2)).expect("small")];
                co.attach(&volume, node).await?;
                check("ControllerPublishVolume", requests.holds(&id, node).await)?;
                co.detach(&id, node).await?;
                check("ControllerUnpublishVolume", !requests.holds(&id, node).await)?;
            }
            2 => {
                let bytes = volume.bytes + (1 << 30);
                co.expand(&mut volume, bytes).await?;
                let shown = requests.volume(&id).await;
                let is_larger = shown.is_some_and(|shown| shown.gib << 30 == bytes);
                check("ControllerExpandVolume", is_larger)?;
                let iops = 3_000 + random.below(1_000);
                let class = HashMap::from([("iops".to_owned(), iops.to_string())]);
                co.modify(&id, &class).await?;
            }
            _ => {
                let snapshot_name = format!("{name}-{}", random.below(1_000_000));
                let snapshot = co.snapshot_ready(&snapshot_name, &id).await?;
                let restored = Claim {
                    name: format!("restored-{snapshot_name}"),
                    bytes: volume.bytes,
                    source: Source::Snapshot(snapshot.id.clone()),
                    ..Claim::filesystem(name, "ext4", 8)
                };
                let restored = co.create(&restored).await?;
                if random.percent(50) {
                    co.delete(&restored.id).await?;
                    let shown = requests.volume(&restored.id).await;
                    let is_gone = shown.is_none_or(|shown| shown.status == "deleting");
                    check("DeleteVolume", is_gone)?;
                } else {
                    kept.volumes.insert((restored.name, restored.id));
                }
                if random.percent(50) {
                    co.delete_snapshot(&snapshot.id).await?;
                } else {
                    kept.snapshots.insert((snapshot_name, snapshot.id));
                }
            }
        }
    }
    if random.percent(60) {
        co.delete(&id).await?;
        return Ok(kept);
    }
    if random.percent(50) {
        co.attach(&volume, &nodes[0]).await?;
        kept.attachments.insert((id.clone(), nodes[0].clone()));
    }
    kept.volumes.insert((name.to_owned(), id));
    Ok(kept)
}

fn check(rpc: &'static str, holds: bool) -> Result<(), CoError> {
    if holds {
        return Ok(());
    }
    Err(CoError::Violation { rpc, what: "EC2 shows something else".to_owned() })
}

//! The callers' use of volumes while the controller is disturbed, and the check that EC2 holds in
//! the end exactly the objects that the callers know of.

use std::collections::BTreeSet;

use ebs_csi_sandbox::co::{Claim, CoError, Source};
use ebs_csi_sandbox::{Co, Simulator};
use fastrand::Rng;
use serde_json::Value;

const ANSWERS: &str = "the simulator answers";

/// The objects that a workload leaves behind on purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Name and id.
    pub(crate) volumes: BTreeSet<(String, String)>,
    /// Name and id.
    pub(crate) snapshots: BTreeSet<(String, String)>,
    /// Volume and instance.
    pub(crate) attachments: BTreeSet<(String, String)>,
}

impl Kept {
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.volumes.extend(other.volumes);
        self.snapshots.extend(other.snapshots);
        self.attachments.extend(other.attachments);
        self
    }

    /// Returns the objects that the simulator holds, without root volumes.
    pub(crate) async fn found(simulator: &Simulator) -> Self {
        let state = simulator.get("/v1/state").await.expect(ANSWERS);
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

    pub(crate) async fn clear(self, co: &Co) -> Result<(), CoError> {
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
pub(crate) async fn run_workload(
    co: Co,
    ec2: &Simulator,
    nodes: &[String],
    name: &str,
    mut random: Rng,
) -> Result<Kept, CoError> {
    let mut kept = Kept::default();
    let mut volume = co.create(&Claim::filesystem(name, "ext4", 8)).await?;
    let id = volume.id.clone();
    for _ in 0..1 + random.u32(0..4) {
        match random.u32(0..4) {
            0 | 1 => {
                let node = &nodes[random.usize(0..2)];
                co.attach(&volume, node).await?;
                check("ControllerPublishVolume", ec2.holds(&id, node).await.expect(ANSWERS))?;
                co.detach(&id, node).await?;
                check("ControllerUnpublishVolume", !ec2.holds(&id, node).await.expect(ANSWERS))?;
            }
            2 => {
                let bytes = volume.bytes + (1 << 30);
                co.expand(&mut volume, bytes).await?;
                let shown = ec2.volume(&id).await.expect(ANSWERS);
                let is_larger = shown.is_some_and(|shown| shown.gib << 30 == bytes);
                check("ControllerExpandVolume", is_larger)?;
                let iops = random.u32(3_000..4_000);
                co.modify(&id, &[("iops", &iops.to_string())]).await?;
            }
            _ => {
                let snapshot_name = format!("{name}-{}", random.u32(0..1_000_000));
                let snapshot = co.snapshot_ready(&snapshot_name, &id).await?;
                let restored = Claim {
                    name: format!("restored-{snapshot_name}"),
                    bytes: volume.bytes,
                    source: Source::Snapshot(snapshot.id.clone()),
                    ..Claim::filesystem(name, "ext4", 8)
                };
                let restored = co.create(&restored).await?;
                if random.bool() {
                    co.delete(&restored.id).await?;
                    let shown = ec2.volume(&restored.id).await.expect(ANSWERS);
                    let is_gone = shown.is_none_or(|shown| shown.status == "deleting");
                    check("DeleteVolume", is_gone)?;
                } else {
                    kept.volumes.insert((restored.name, restored.id));
                }
                if random.bool() {
                    co.delete_snapshot(&snapshot.id).await?;
                } else {
                    kept.snapshots.insert((snapshot_name, snapshot.id));
                }
            }
        }
    }
    if random.f64() < 0.6 {
        co.delete(&id).await?;
        return Ok(kept);
    }
    if random.bool() {
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

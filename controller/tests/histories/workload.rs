//! The life of one workload's volumes, decided by its seed: they are created, moved, expanded,
//! modified, backed up, restored, copied and deleted. Now and then a person acts on the same
//! volumes, or the user gives up a request.

pub(crate) mod group;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_server::Controller as Service;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use ebs_csi_proto::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use ebs_csi_proto::csi::volume_content_source::{SnapshotSource, Type as SourceType, VolumeSource};
use ec2_sim::Power;
use tokio::time::Instant;

use super::history::{NODES, World};
use super::orchestrator::{self, Sidecar};
use super::seeded_random::SeededRandom;

struct Workload {
    world: Arc<World>,
    random: SeededRandom,
    name: String,
    created: u32,
}

struct WorkloadVolume {
    id: String,
    gib: i64,
    context: HashMap<String, String>,
    /// Whether a person has acted on the volume: its state is then not what the callers made.
    disturbed: bool,
}

/// Runs the workload to its end. Returns `None` when the workload ended early, which was recorded
/// as a violation.
pub(crate) async fn run(world: Arc<World>, seed: u64, n: usize) -> Option<()> {
    let random = SeededRandom::of(seed, &format!("life {n}"));
    let workload = Workload { world, random, name: format!("pvc-{n}"), created: 0 };
    workload.run().await
}

impl Workload {
    async fn run(mut self) -> Option<()> {
        tokio::time::sleep(self.random.millis(0, 20_000)).await;
        let gib = 4 + i64::try_from(self.random.below(3)).unwrap();
        let Some(mut owned) = self.create_volume(gib, None).await else {
            return Some(());
        };
        for _ in 0..1 + self.random.below(4) {
            match self.random.below(10) {
                0..4 => self.attach_and_detach(&mut owned).await?,
                4 => self.grow(&mut owned).await?,
                5 => self.modify(&owned).await?,
                6 => self.grow_and_modify(&mut owned).await?,
                7 | 8 => self.back_up(&mut owned).await?,
                _ => self.copy(&mut owned).await?,
            }
            if owned.disturbed {
                break;
            }
        }
        if !owned.disturbed && self.random.chance(0.25) {
            // The volume stays, possibly attached.
            let node = NODES[self.random.below(2)];
            if self.random.chance(0.5)
                && orchestrator::attach(&self.world, &publish(&owned, node), None, false).await?
            {
                self.world.add_known_attachment(&owned.id, node);
            }
            return Some(());
        }
        orchestrator::delete_volume_of_claim(&self.world, &owned.id).await
    }

    /// Creates a volume with a new name. Returns `None` when the request was given up.
    async fn create_volume(
        &mut self,
        gib: i64,
        source: Option<SourceType>,
    ) -> Option<WorkloadVolume> {
        self.created += 1;
        let mut parameters = HashMap::new();
        if source.is_some() && self.random.chance(0.5) {
            parameters.extend(strings([("blockAttachUntilInitialized", "true")]));
        }
        if self.random.chance(0.3) {
            parameters.extend(strings([("type", "io2"), ("iops", "200")]));
        }
        let zone = csi::Topology {
            segments: strings([("topology.kubernetes.io/zone", "us-east-1a")]).collect(),
        };
        let request = csi::CreateVolumeRequest {
            name: format!("{}-{}", self.name, self.created),
            capacity_range: Some(csi::CapacityRange { required_bytes: gib << 30, limit_bytes: 0 }),
            volume_capabilities: vec![mount()],
            parameters,
            accessibility_requirements: Some(csi::TopologyRequirement {
                requisite: vec![zone],
                preferred: vec![],
            }),
            volume_content_source: source
                .map(|source| csi::VolumeContentSource { r#type: Some(source) }),
            ..Default::default()
        };
        let volume =
            orchestrator::provision(&self.world, &request, self.give_up_time(0.25)).await?;
        // A repeated request returns the same volume.
        if self.random.chance(0.2) {
            let (name, first) = (request.name.clone(), &volume.volume_id);
            let again = orchestrator::repeat_until_success(
                &self.world,
                Sidecar::Provisioner,
                &name,
                request,
                |c, r| c.create_volume(r),
            );
            let again = again.await?.volume?.volume_id;
            if again != *first {
                self.world.record_violation(format!("{name} is {first}, and then {again}"));
            }
        }
        Some(WorkloadVolume {
            id: volume.volume_id,
            gib: volume.capacity_bytes >> 30,
            context: volume.volume_context,
            disturbed: false,
        })
    }

    /// Returns the time at which a request is given up, if it is.
    fn give_up_time(&self, probability: f64) -> Option<Instant> {
        let gives_up = self.random.chance(probability);
        gives_up.then(|| Instant::now() + self.random.millis(0, 15_000))
    }

    async fn attach_and_detach(&self, owned: &mut WorkloadVolume) -> Option<()> {
        let is_disturbed = self.world.faults.foreign && self.random.chance(0.2);
        let node = match is_disturbed && self.random.chance(0.3) {
            true => NODES[2],
            false => NODES[self.random.below(2)],
        };
        let unwanted_at = match is_disturbed {
            true => Some(Instant::now() + self.random.millis(5_000, 60_000)),
            false => self.give_up_time(0.3),
        };
        let person = is_disturbed.then(|| self.disturb(owned, node));
        owned.disturbed |= is_disturbed;
        orchestrator::attach(&self.world, &publish(owned, node), unwanted_at, is_disturbed).await?;
        if self.random.chance(0.5) {
            tokio::time::sleep(self.random.millis(0, 5_000)).await;
        }
        orchestrator::detach(&self.world, &owned.id, node).await?;
        if let Some(person) = person {
            person.await.ok()?;
            // The person may have acted after the detach, so the volume is detached again.
            orchestrator::detach(&self.world, &owned.id, node).await?;
        }
        Some(())
    }

    /// Starts a task in which a person acts while the driver works.
    fn disturb(&self, owned: &WorkloadVolume, node: &'static str) -> tokio::task::JoinHandle<()> {
        let (world, id) = (Arc::clone(&self.world), owned.id.clone());
        let after = self.random.millis(0, 8_000);
        let act = if node == NODES[2] { 0 } else { 1 + self.random.below(3) };
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let foreign = |action: &str, more: &[(&str, &str)]| {
                let parameters: BTreeMap<String, String> =
                    strings(more.iter().copied().chain([("VolumeId", id.as_str())])).collect();
                world.ec2.note(format!("a person's {action} {parameters:?}"));
                world.ec2.act(|sim, now| sim.as_foreign(now, action, &parameters));
            };
            match act {
                0 => {
                    world.ec2.note(format!("{node} is terminated"));
                    world.ec2.act(|sim, now| sim.set_power(now, node, Power::Terminate, false));
                }
                1 => foreign("DetachVolume", &[]),
                2 => foreign("DeleteVolume", &[]),
                _ => {
                    let other = if node == NODES[0] { NODES[1] } else { NODES[0] };
                    foreign("AttachVolume", &[("InstanceId", other), ("Device", "/dev/xvdzz")]);
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    foreign("DetachVolume", &[("InstanceId", other)]);
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    foreign("DetachVolume", &[("InstanceId", other)]);
                }
            }
        })
    }

    async fn grow(&self, owned: &mut WorkloadVolume) -> Option<()> {
        owned.gib += 1;
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: owned.id.clone(),
            capacity_range: Some(csi::CapacityRange {
                required_bytes: owned.gib << 30,
                limit_bytes: 0,
            }),
            ..Default::default()
        };
        let what = format!("grow {}", owned.id);
        let answer = orchestrator::repeat_until_success(
            &self.world,
            Sidecar::Resizer,
            &what,
            request,
            |c, r| c.controller_expand_volume(r),
        );
        let answered = answer.await?.capacity_bytes;
        self.world.check_size(&owned.id, owned.gib << 30, answered);
        Some(())
    }

    async fn modify(&self, owned: &WorkloadVolume) -> Option<()> {
        // io2 allows at most 1000 IOPS for each GiB.
        let iops = (3_001 + u32::try_from(self.random.below(900)).unwrap()) / 4;
        let request = csi::ControllerModifyVolumeRequest {
            volume_id: owned.id.clone(),
            mutable_parameters: strings([("type", "io2"), ("iops", &iops.to_string())]).collect(),
            ..Default::default()
        };
        let what = format!("modify {}", owned.id);
        let answer = orchestrator::repeat_until_success(
            &self.world,
            Sidecar::Resizer,
            &what,
            request,
            |c, r| c.controller_modify_volume(r),
        );
        answer.await?;
        self.world.check_iops(&owned.id, iops);
        Some(())
    }

    async fn grow_and_modify(&self, owned: &mut WorkloadVolume) -> Option<()> {
        let same = WorkloadVolume {
            id: owned.id.clone(),
            gib: owned.gib,
            context: HashMap::new(),
            disturbed: false,
        };
        let (grown, modified) = tokio::join!(self.grow(owned), self.modify(&same));
        grown.and(modified)
    }

    /// Takes a snapshot, and now and then restores a volume from it.
    async fn back_up(&mut self, owned: &mut WorkloadVolume) -> Option<()> {
        self.created += 1;
        let request = csi::CreateSnapshotRequest {
            name: format!("snapshot-{}-{}", self.name, self.created),
            source_volume_id: owned.id.clone(),
            ..Default::default()
        };
        let Some(snapshot) =
            orchestrator::snapshot(&self.world, &request, self.give_up_time(0.25)).await
        else {
            return Some(());
        };
        if self.random.chance(0.6) {
            let source =
                SourceType::Snapshot(SnapshotSource { snapshot_id: snapshot.snapshot_id.clone() });
            self.use_once(owned.gib, source).await?;
        }
        if self.random.chance(0.8) {
            orchestrator::delete_snapshot_of_claim(&self.world, &snapshot.snapshot_id).await?;
        }
        Some(())
    }

    async fn copy(&mut self, owned: &mut WorkloadVolume) -> Option<()> {
        let source = SourceType::Volume(VolumeSource { volume_id: owned.id.clone() });
        self.use_once(owned.gib, source).await
    }

    async fn use_once(&mut self, gib: i64, source: SourceType) -> Option<()> {
        let Some(owned) = self.create_volume(gib, Some(source)).await else {
            return Some(());
        };
        let node = NODES[self.random.below(2)];
        if self.random.chance(0.7) {
            let request = publish(&owned, node);
            orchestrator::attach(&self.world, &request, self.give_up_time(0.2), false).await?;
            orchestrator::detach(&self.world, &owned.id, node).await?;
        }
        orchestrator::delete_volume_of_claim(&self.world, &owned.id).await
    }
}

fn strings<'a>(
    entries: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> impl Iterator<Item = (String, String)> {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()))
}

pub(crate) fn mount() -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter as i32 }),
    }
}

fn publish(owned: &WorkloadVolume, node: &str) -> csi::ControllerPublishVolumeRequest {
    csi::ControllerPublishVolumeRequest {
        volume_id: owned.id.clone(),
        node_id: node.to_owned(),
        volume_capability: Some(mount()),
        volume_context: owned.context.clone(),
        ..Default::default()
    }
}

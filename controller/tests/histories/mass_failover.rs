//! A mass failover under `enforce`, without any node's answer: 200 instances stop and start again
//! at random, while reads are throttled and show an older state. A DetachVolume must never reach
//! EC2 while the instance holds the volume: from a boot that may mount it until EC2 shows it
//! stopped.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_smithy_async::time::SharedTimeSource;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use ebs_csi_controller::csi::service::{Controller, ServiceSettings};
use ebs_csi_controller::safe_detach::Mode;
use ebs_csi_ec2::Ec2Settings;
use ebs_csi_proto::csi::ControllerUnpublishVolumeRequest;
use ebs_csi_proto::csi::controller_server::Controller as Service;
use ec2_sim::Power;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::{Code, Request};

use super::connection::WrongClock;
use super::seeded_random::SeededRandom;
use crate::world::in_process::{InProcess, block_on, deliver};

const ZONE: &str = "us-east-1a";
const DEVICE: (&str, &str) = ("Device", "/dev/xvdba");
const INSTANCES: usize = 200;
/// From then on, all instances stop for good, and reads are well.
const CALM_AFTER: Duration = Duration::from_secs(120);
/// All volumes are detached this long afterwards.
const ENDS_AFTER: Duration = Duration::from_secs(900);

/// How old a state reads show, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateReads {
    pub(crate) ms: u64,
    pub(crate) share: f64,
}

impl LateReads {
    /// The oldest reads that the driver is made for.
    pub(crate) const ACCEPTED: Self = Self { ms: 1_000, share: 0.4 };
    /// Reads that are older than a boot takes.
    pub(crate) const OLDER_THAN_BOOT: Self = Self { ms: 20_000, share: 1.0 };
}

/// What one history has shown.
#[derive(Debug, Default)]
pub(crate) struct MassFailover {
    pub(crate) detaches: usize,
    pub(crate) refusals: usize,
    pub(crate) violations: Vec<String>,
}

/// EC2, and the instances that hold their volume.
#[derive(Clone, Debug)]
struct World {
    ec2: InProcess,
    volumes: Arc<Vec<String>>,
    holders: Arc<Mutex<HashSet<usize>>>,
    seen: Arc<Mutex<MassFailover>>,
    began: Instant,
}

impl HttpConnector for World {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let form = String::from_utf8_lossy(request.body().bytes().unwrap_or_default()).into_owned();
        if form.starts_with("Action=DetachVolume") {
            let mut seen = self.seen.lock().unwrap();
            seen.detaches += 1;
            // `power` learns of a stop by polling; what it has not seen yet may be over.
            let holds = |number: &&usize| {
                form.contains(&instance(**number)) && self.state(**number) != "stopped"
            };
            if let Some(number) = self.holders.lock().unwrap().iter().find(holds) {
                let at = self.began.elapsed().as_millis();
                seen.violations.push(format!("{at} ms: instance {number} runs: {form}"));
            }
        }
        HttpConnectorFuture::new(deliver(self.ec2.handle(&request)))
    }
}

fn instance(number: usize) -> String {
    format!("i-0aaaaaaaaaaaa{number:04x}")
}

fn as_person(ec2: &InProcess, action: &str, parameters: &[(&str, &str)]) -> String {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let parameters = parameters.iter().map(owned).collect();
    let reply = ec2.act(|sim, now| sim.as_foreign(now, action, &parameters));
    let answer = String::from_utf8(reply.body).expect("text");
    assert_eq!(reply.status, 200, "{action}: {answer}");
    answer
}

/// Creates volumes that are attached to the instances. Returns their ids.
async fn attached_volumes(ec2: &InProcess) -> Vec<String> {
    let mut volumes = Vec::new();
    for number in 0..INSTANCES {
        let parameters = [("AvailabilityZone", ZONE), ("Size", "1"), ("VolumeType", "gp3")];
        let created = as_person(ec2, "CreateVolume", &parameters);
        let id = created.split("<volumeId>").nth(1).and_then(|rest| rest.split('<').next());
        let id = id.expect("an id").to_owned();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let to = [("VolumeId", id.as_str()), ("InstanceId", &instance(number)), DEVICE];
        as_person(ec2, "AttachVolume", &to);
        volumes.push(id);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    volumes
}

pub(crate) fn run(seed: u64, late_reads: LateReads) -> MassFailover {
    block_on(play(seed, late_reads))
}

async fn play(seed: u64, late_reads: LateReads) -> MassFailover {
    let ec2 = InProcess::new(scenario(seed));
    let volumes = attached_volumes(&ec2).await;
    let LateReads { ms, share } = late_reads;
    let stale = json!({ "match": { "action": "Describe*" }, "probability": share, "fault": { "kind": "stale", "ms": ms } });
    ec2.fault(stale);
    let world = World {
        ec2,
        volumes: Arc::new(volumes),
        holders: Arc::default(),
        seen: Arc::default(),
        began: Instant::now(),
    };
    let random = SeededRandom::of(seed, "replica");
    let clock = WrongClock { ec2: world.ec2.clone(), ahead_ms: Arc::default() };
    let settings = Ec2Settings { seed: random.seed(), ..Ec2Settings::default() };
    let ec2 = world.ec2.access_by(world.clone(), SharedTimeSource::new(clock), settings).await;
    let settings = ServiceSettings { safe_detach: Mode::Enforce, ..ServiceSettings::default() };
    let controller = Controller::new(ec2, settings, Arc::default());
    let mut tasks = Vec::new();
    for number in 0..INSTANCES {
        world.holders.lock().unwrap().insert(number);
        tokio::spawn(world.clone().power(number, SeededRandom::of(seed, &instance(number))));
        let random = SeededRandom::of(seed, &format!("detach {number}"));
        tasks.push(tokio::spawn(world.clone().detach(number, random, controller.clone())));
    }
    world.throttle_reads(SeededRandom::of(seed, "other clients")).await;
    world.ec2.act(|sim, _| sim.faults.clear());
    for task in tasks {
        task.await.expect("it does not panic");
    }
    std::mem::take(&mut *world.seen.lock().unwrap())
}

impl World {
    /// Stops and starts an instance. Kubelet mounts the volume some seconds after the start, if it
    /// is still attached.
    async fn power(self, number: usize, random: SeededRandom) {
        let id = instance(number);
        loop {
            tokio::time::sleep(random.millis(0, 60_000)).await;
            self.set(number, Power::Stop, "stopped").await;
            self.holders.lock().unwrap().remove(&number);
            if self.began.elapsed() > CALM_AFTER {
                return;
            }
            tokio::time::sleep(random.millis(0, 4_000)).await;
            self.set(number, Power::Start, "running").await;
            tokio::time::sleep(random.millis(1_000, 10_000)).await;
            let is_attached = self.ec2.act(|sim, _| {
                let volume = &sim.realm().volumes()[&self.volumes[number]];
                volume.attachment(&id).is_some_and(|at| at.status() == "attached")
            });
            if is_attached {
                self.holders.lock().unwrap().insert(number);
            }
        }
    }

    fn state(&self, number: usize) -> &'static str {
        self.ec2.act(|sim, _| sim.realm().instances()[&instance(number)].state().1)
    }

    async fn set(&self, number: usize, power: Power, until: &str) {
        let id = instance(number);
        self.ec2.act(|sim, now| sim.set_power(now, &id, power, false)).expect("it changes");
        while self.state(number) != until {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Lets other clients use up the account's rate of reads now and then, until all is calm.
    async fn throttle_reads(&self, random: SeededRandom) {
        while self.began.elapsed() < CALM_AFTER {
            for (requests, from, to) in [(0.0, 5_000, 30_000), (1_000.0, 100, 1_000)] {
                for action in ["DescribeInstances", "DescribeVolumes"] {
                    let foreign = (action.to_owned(), requests);
                    self.ec2.act(|sim, _| sim.limits.foreign.insert(foreign.0, foreign.1));
                }
                tokio::time::sleep(random.millis(from, to)).await;
            }
        }
        self.ec2.act(|sim, _| sim.limits.foreign.clear());
    }

    /// Detaches, as external-attacher does, until the call succeeds.
    async fn detach(self, number: usize, random: SeededRandom, controller: Controller) {
        tokio::time::sleep(random.millis(0, 20_000)).await;
        loop {
            let mut request = Request::new(ControllerUnpublishVolumeRequest {
                volume_id: self.volumes[number].clone(),
                node_id: instance(number),
                ..Default::default()
            });
            request.set_timeout(Duration::from_secs(60));
            let status = match controller.controller_unpublish_volume(request).await {
                Ok(_) => return,
                Err(status) => status,
            };
            if status.code() == Code::FailedPrecondition {
                self.seen.lock().unwrap().refusals += 1;
            }
            if self.began.elapsed() > ENDS_AFTER {
                let what = format!("{}: {status}", self.volumes[number]);
                self.seen.lock().unwrap().violations.push(what);
                return;
            }
            tokio::time::sleep(random.millis(500, 6_000)).await;
        }
    }
}

fn scenario(seed: u64) -> Value {
    let instance = |number| json!({ "id": instance(number), "type": "m5.large", "zone": ZONE });
    json!({
        "seed": seed,
        "profile": "fast",
        "latency": {
            "api_read": { "p50_ms": 60, "p99_ms": 330 },
            "api_write": { "p50_ms": 60, "p99_ms": 900 },
            "detach": { "p50_ms": 150, "p99_ms": 1_500 },
            "instance_stop": { "p50_ms": 5_000, "p99_ms": 20_000 },
            "instance_start": { "p50_ms": 3_000, "p99_ms": 9_000 },
        },
        "instances": (0..INSTANCES).map(instance).collect::<Vec<_>>(),
    })
}

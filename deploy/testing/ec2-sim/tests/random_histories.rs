//! Random requests and times: nothing panics, and no invariant is violated.

mod world;

use ec2_sim::{Millis, Power, Random, Request, Scenario, Sim};
use serde_json::json;

const NODES: [&str; 3] = ["i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2", "i-0ccccccccccccccc3"];

fn scenario(seed: u64) -> Scenario {
    serde_json::from_value(json!({
        "seed": seed, "profile": "real", "limits": {"scale": 1000.0},
        "instances": [
            {"id": NODES[0], "zone": "us-east-1a"}, {"id": NODES[1], "zone": "us-east-1a", "type": "m7i.large"}, {"id": NODES[2], "zone": "us-east-1b"},
        ],
        "faults": [
            {"probability": 0.05, "fault": {"kind": "lose_reply", "how": "close", "effect": true}},
            {"probability": 0.05, "fault": {"kind": "duplicate", "after_ms": 1500}},
            {"probability": 0.1, "fault": {"kind": "fail_create", "outcome": "vanish"}},
            {"probability": 0.1, "fault": {"kind": "stuck_detach", "for_ms": 20000, "busy": true}},
            {"probability": 0.1, "fault": {"kind": "fail_modify"}},
            {"probability": 0.1, "fault": {"kind": "fail_snapshot"}},
            {"probability": 0.1, "fault": {"kind": "fail_snapshot", "member": 1}},
        ],
    }))
    .expect("scenario")
}

/// The actions; a repeated one is chosen more often.
const ACTIONS: &str = "
CreateVolume CreateVolume CreateVolume AttachVolume AttachVolume AttachVolume DetachVolume DetachVolume
DeleteVolume ModifyVolume CreateSnapshot CreateSnapshots DeleteSnapshot CopyVolumes CreateTags
StopInstances
DescribeVolumes DescribeInstances";

struct History {
    random: Random,
    ids: Vec<String>,
    snapshots: Vec<String>,
    now: Millis,
}

impl History {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let n = usize::try_from(self.random.bits() % from.len() as u64).expect("index");
        from[n].clone()
    }

    fn volume(&mut self) -> String {
        let mut ids = self.ids.clone();
        ids.push("vol-0123456789abcdef0".to_owned());
        ids.push("bad".to_owned());
        self.pick(&ids)
    }

    fn next(&mut self) -> (&'static str, String) {
        let actions: Vec<&str> = ACTIONS.split_whitespace().collect();
        let action = self.pick(&actions);
        let zone = self.pick(&["us-east-1a", "us-east-1a", "us-east-1b"]);
        let (volume, node) = (self.volume(), self.pick(&NODES));
        let letter = char::from(b'a' + u8::try_from(self.random.bits() % 26).expect("letter"));
        let small = 4 + self.random.bits() % 3;
        let mut snapshots = self.snapshots.clone();
        snapshots.push("snap-0123456789abcdef0".to_owned());
        let snapshot = self.pick(&snapshots);
        let mut p = match action {
            "CreateVolume" => {
                let token = self.random.bits() % 40;
                let more = match self.random.bits() % 3 {
                    0 => format!("SnapshotId={snapshot}&VolumeType=gp3"),
                    1 => format!("Size={small}&VolumeType=io2&Iops=100&MultiAttachEnabled=true"),
                    _ => format!("Size={small}"),
                };
                format!("AvailabilityZone={zone}&ClientToken=t{token}&{more}")
            }
            "AttachVolume" => {
                format!("VolumeId={volume}&InstanceId={node}&Device=/dev/xvdb{letter}")
            }
            "DetachVolume" => match self.random.bits() % 4 {
                0 => format!("VolumeId={volume}&Force=true"),
                1 => format!("VolumeId={volume}"),
                _ => format!("VolumeId={volume}&InstanceId={node}"),
            },
            "ModifyVolume" => format!("VolumeId={volume}&Size={small}"),
            "DeleteVolume" | "CreateSnapshot" => format!("VolumeId={volume}"),
            "CreateSnapshots" => match self.random.bits() % 3 {
                0 => format!("InstanceSpecification.InstanceId={node}"),
                1 => world::set_of(node),
                _ => world::set_of(node) + &world::without(&[volume]),
            },
            "CopyVolumes" => format!("SourceVolumeId={volume}"),
            "DeleteSnapshot" => format!("SnapshotId={snapshot}"),
            "CreateTags" => format!("ResourceId.1={volume}&Tag.1.Key=k&Tag.1.Value={small}"),
            "StopInstances" => format!("InstanceId.1={node}"),
            _ => String::new(),
        };
        if self.random.bits().is_multiple_of(20) {
            p += "&DryRun=true";
        }
        (action, p)
    }
}

#[test]
fn random_histories_keep_every_invariant() {
    for seed in 0..25 {
        let mut h = History {
            random: Random::new(seed, "history"),
            ids: Vec::new(),
            snapshots: Vec::new(),
            now: Millis::parse("2026-01-01T00:00:00Z").expect("time"),
        };
        let mut sim = Sim::new(&scenario(seed), h.now).expect("sim");
        let mut good = 0;
        for step in 0..400 {
            let (action, parameters) = h.next();
            let form = format!("Action={action}&Version=2016-11-15&{parameters}");
            let request = Request {
                form: form.into_bytes(),
                authorization: Some("Credential=K/20260101/us-east-1/ec2/aws4_request".to_owned()),
                ..Request::default()
            };
            let reply = sim.handle(h.now, &request);
            good += usize::from(reply.status == 200);
            assert!(
                matches!(reply.status, 200 | 400 | 412),
                "seed {seed} step {step}: {action} {parameters:?}: {}",
                String::from_utf8_lossy(&reply.body)
            );
            let realm = &sim.realm();
            h.ids = realm.volumes().keys().cloned().collect();
            h.snapshots = realm.snapshots().keys().cloned().collect();
            h.now = h.now.plus(h.random.bits() % 3_000);
            sim.settle(h.now);
            if step % 20 == 0 {
                sim.set_power(h.now, h.pick(&NODES), Power::Start, false);
            }
            assert!(
                sim.next_due().is_none_or(|due| due > h.now),
                "seed {seed} step {step}: something due was left"
            );
            assert!(
                sim.invariants.found().is_empty(),
                "seed {seed} step {step}: {action} {parameters:?}: {:?}",
                sim.invariants.found()
            );
        }
        assert!(good > 100, "seed {seed}: only {good} calls did anything");
    }
}

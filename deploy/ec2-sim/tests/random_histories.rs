//! Random requests and times: nothing panics, and no invariant is violated.

use ec2_sim::random::Random;
use ec2_sim::time::Millis;
use ec2_sim::{Request, Scenario, Sim};
use serde_json::json;

const NODES: [&str; 3] = [
    "i-0aaaaaaaaaaaaaaa1",
    "i-0bbbbbbbbbbbbbbb2",
    "i-0ccccccccccccccc3",
];

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
        ],
    }))
    .expect("scenario")
}

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

    fn next(&mut self) -> (&'static str, Vec<(&'static str, String)>) {
        let action = self.pick(&[
            "CreateVolume",
            "CreateVolume",
            "CreateVolume",
            "AttachVolume",
            "AttachVolume",
            "AttachVolume",
            "DetachVolume",
            "DetachVolume",
            "DeleteVolume",
            "ModifyVolume",
            "CreateSnapshot",
            "DeleteSnapshot",
            "CopyVolumes",
            "CreateTags",
            "StopInstances",
            "StartInstances",
            "DescribeVolumes",
            "DescribeInstances",
        ]);
        let zone = self
            .pick(&["us-east-1a", "us-east-1a", "us-east-1b"])
            .to_owned();
        let (volume, node) = (self.volume(), self.pick(&NODES).to_owned());
        let letter = char::from(b'a' + u8::try_from(self.random.bits() % 26).expect("letter"));
        let small = (4 + self.random.bits() % 3).to_string();
        let mut snapshots = self.snapshots.clone();
        snapshots.push("snap-0123456789abcdef0".to_owned());
        let snapshot = self.pick(&snapshots);
        let mut p = match action {
            "CreateVolume" => {
                let mut p = vec![
                    ("AvailabilityZone", zone),
                    ("ClientToken", format!("t{}", self.random.bits() % 40)),
                ];
                match self.random.bits() % 3 {
                    0 => p.extend([("SnapshotId", snapshot), ("VolumeType", "gp3".to_owned())]),
                    1 => p.extend([
                        ("Size", small),
                        ("VolumeType", "io2".to_owned()),
                        ("Iops", "100".to_owned()),
                        ("MultiAttachEnabled", "true".to_owned()),
                    ]),
                    _ => p.push(("Size", small)),
                }
                p
            }
            "AttachVolume" => vec![
                ("VolumeId", volume),
                ("InstanceId", node),
                ("Device", format!("/dev/xvdb{letter}")),
            ],
            "DetachVolume" => {
                let mut p = vec![("VolumeId", volume)];
                match self.random.bits() % 4 {
                    0 => p.push(("Force", "true".to_owned())),
                    1 => {}
                    _ => p.push(("InstanceId", node)),
                }
                p
            }
            "ModifyVolume" => vec![("VolumeId", volume), ("Size", small)],
            "DeleteVolume" | "CreateSnapshot" => vec![("VolumeId", volume)],
            "CopyVolumes" => vec![("SourceVolumeId", volume)],
            "DeleteSnapshot" => vec![("SnapshotId", snapshot)],
            "CreateTags" => vec![
                ("ResourceId.1", volume),
                ("Tag.1.Key", "k".to_owned()),
                ("Tag.1.Value", small),
            ],
            "StopInstances" | "StartInstances" => vec![("InstanceId.1", node)],
            _ => Vec::new(),
        };
        if self.random.bits().is_multiple_of(20) {
            p.push(("DryRun", "true".to_owned()));
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
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.append_pair("Action", action)
                .append_pair("Version", "2016-11-15");
            for (k, v) in &parameters {
                form.append_pair(k, v);
            }
            let request = Request {
                form: form.finish().into_bytes(),
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

//! Runs the driver and the simulator in one thread, under virtual time: a repeated run with the
//! same seed is identical.

#[path = "world/in_process.rs"]
mod in_process;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_controller::csi::service::{Controller, ServiceSettings};
use ebs_csi_ec2::{
    AttachmentState, Call, CreateVolume, Ec2, Ec2Error, Force, LookResult, Tags, VolumeState,
    WatchedChange,
};
use ebs_csi_proto::GiB;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_server::Controller as Service;
use ebs_csi_wire::{DeviceName, InstanceId};
use in_process::{InProcess, block_on};
use serde_json::json;
use tokio::time::Instant;
use tonic::Request;

/// Creates, attaches, detaches and deletes a volume. Returns the first error.
async fn use_volume(ec2: Ec2, call: Call, n: usize) -> Result<(), Ec2Error> {
    let node = InstanceId::parse("i-0aaaaaaaaaaaaaaa1").unwrap();
    let letter = char::from(b'a' + u8::try_from(n % 26).unwrap());
    let device = DeviceName::parse(&format!("/dev/xvda{letter}")).unwrap();
    let request = CreateVolume {
        client_token: format!("token-{n}"),
        size: GiB(1),
        kind: "gp3".to_owned(),
        zone: Some("us-east-1a".to_owned()),
        encrypted: Some(false),
        tags: Tags::from([("CSIVolumeName".to_owned(), format!("pvc-{n}"))]),
        ..CreateVolume::default()
    };
    let volume = ec2.create_volume(&call, &request).await?;
    let far = Instant::now() + Duration::from_secs(600);
    ec2.watch_volume(&call, &volume.id, WatchedChange::Creation, far, |seen| match seen {
        LookResult::Present(v) if v.state == VolumeState::Available => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .await;
    ec2.attach_volume(&call, &volume.id, &node, &device, None).await?;
    ec2.watch_volume(&call, &volume.id, WatchedChange::Attachment, far, |seen| {
        match seen.present().and_then(|v| v.attachment(&node)) {
            Some(a) if a.state == AttachmentState::Attached => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
    .await;
    ec2.detach_volume(&call, &volume.id, &node, Force::No, Instant::now()).await?;
    ec2.watch_volume(&call, &volume.id, WatchedChange::Detachment, far, |seen| {
        match seen.present() {
            Some(v) if v.attachments.is_empty() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
    .await;
    ec2.delete_volume(&call, &volume.id).await
}

/// Returns all requests between the driver and EC2, and the result for each volume.
fn history(seed: u64) -> (Vec<String>, Vec<String>) {
    block_on(async {
        let world = InProcess::new(json!({
            "seed": seed,
            "profile": "real",
            "faults": [
                { "match": { "action": "DescribeVolumes" }, "probability": 0.05,
                  "fault": { "kind": "error", "code": "InternalError", "status": 500 } },
                { "match": { "action": "*" }, "probability": 0.03, "fault": { "kind": "throttle" } },
                { "match": { "action": "*" }, "probability": 0.03,
                  "fault": { "kind": "lose_reply", "how": "close", "effect": true } },
            ],
        }));
        let ec2 = world.access(seed).await;
        let call = Call::until(Instant::now() + Duration::from_secs(900));
        let use_volume = |n| tokio::spawn(use_volume(ec2.clone(), call.clone(), n));
        let volumes: Vec<_> = (0..20).map(use_volume).collect();
        let mut results = Vec::new();
        for volume in volumes {
            let result = volume.await.unwrap();
            results.push(result.map_or_else(|e| format!("{:?}", e.kind), |()| "ok".to_owned()));
        }
        (world.log_lines(), results)
    })
}

#[test]
fn a_seed_replays_its_history_exactly() {
    for seed in [1, 2] {
        let (first, second) = (history(seed), history(seed));
        assert!(first.0.len() > 80 && first.1.contains(&"ok".to_owned()), "{:?}", first.1);
        for (n, (a, b)) in first.0.iter().zip(&second.0).enumerate() {
            assert_eq!(a, b, "seed {seed}, request {n}");
        }
        assert_eq!(first, second);
    }
    assert_ne!(history(1).0, history(2).0);
}

fn volume(name: &str) -> csi::CreateVolumeRequest {
    use csi::volume_capability::access_mode::Mode;
    use csi::volume_capability::{AccessMode, AccessType, MountVolume};
    csi::CreateVolumeRequest {
        name: name.to_owned(),
        volume_capabilities: vec![csi::VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }],
        ..Default::default()
    }
}

/// Requests what the other callers request, and something of its own as soon as the first result is
/// there: EC2 then sees in which order the callers were answered.
async fn caller(controller: Controller, n: usize) {
    let create = async |name: &str| {
        let answer = controller.create_volume(Request::new(volume(name))).await.unwrap();
        answer.into_inner().volume.unwrap()
    };
    let shared = create("pvc-shared").await;
    create(&format!("pvc-after-create-{n}")).await;
    let change = csi::ControllerModifyVolumeRequest {
        volume_id: shared.volume_id.clone(),
        mutable_parameters: HashMap::from([("iops".to_owned(), "4000".to_owned())]),
        ..Default::default()
    };
    controller.controller_modify_volume(Request::new(change)).await.unwrap();
    create(&format!("pvc-after-modify-{n}")).await;
    let gone = csi::DeleteVolumeRequest { volume_id: shared.volume_id, ..Default::default() };
    controller.delete_volume(Request::new(gone)).await.unwrap();
}

/// Returns the requests to EC2 while many callers waited for the same operations.
fn many_callers_of_one_key() -> Vec<String> {
    block_on(async {
        let world = InProcess::new(json!({ "seed": 1, "profile": "fast" }));
        let controller =
            Controller::new(world.access(1).await, ServiceSettings::default(), Arc::default());
        let callers: Vec<_> =
            (0..12).map(|n| tokio::spawn(caller(controller.clone(), n))).collect();
        for caller in callers {
            caller.await.unwrap();
        }
        world.log_lines()
    })
}

/// Each caller then makes a create of its own, so the order of EC2's requests shows the order of
/// the answers.
#[test]
fn waiting_callers_are_answered_in_reproducible_order() {
    let first = many_callers_of_one_key();
    let made = |what: &str| first.iter().filter(|line| line.contains(what)).count();
    assert_eq!(made("Action=CreateVolume&"), 25, "{first:#?}");
    assert_eq!(made("Action=ModifyVolume&"), 1);
    for _ in 0..3 {
        for (n, (a, b)) in first.iter().zip(&many_callers_of_one_key()).enumerate() {
            assert_eq!(a, b, "request {n}");
        }
    }
}

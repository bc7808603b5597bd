//! The real agent with a real helper behind a vsock address. `deploy/testing/vm/run` starts the
//! virtual machine, whose first process makes the volume's disk, grows it, and kills the helper
//! once; and it runs this test beside the machine or inside.

#[path = "scripted/agent.rs"]
mod agent;
#[path = "scripted/metadata_service.rs"]
mod metadata_service;
#[path = "scripted/helper.rs"]
mod scripted_helper;
#[path = "scripted/world.rs"]
mod world;

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use agent::Host;
use ebs_csi_proto::csi::{self, volume_usage::Unit};
use metadata_service::MetadataService;
use tonic::{Code, Status};
use world::STAGING;

/// A time that only a hang reaches, also in an emulated machine.
const LONG: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(200);
/// The size that the machine gives the disk after it is staged.
const GROWN: i64 = 128 << 20;

/// Returns the request for a volume that EC2 made blank.
fn stage() -> csi::NodeStageVolumeRequest {
    let mut request = world::stage();
    let blank = ("ebs.csi.aws.com/origin".to_owned(), "blank".to_owned());
    request.publish_context.extend([blank]);
    request
}

/// Repeats a call until it succeeds.
async fn soon<T: Debug, F>(what: &str, call: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, Status>>,
{
    let started = Instant::now();
    loop {
        match call().await {
            Ok(answer) => {
                println!("{what}: after {:?}", started.elapsed());
                return answer;
            }
            Err(status) => assert!(started.elapsed() < LONG, "{what}: {status}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::test]
#[ignore = "deploy/testing/vm/run starts the virtual machine"]
async fn volume_lives_grows_and_leaves_over_vsock() {
    let [helper, key] = ["EBS_CSI_VM_HELPER", "EBS_CSI_VM_KEY_FILE"]
        .map(|name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set")));
    let host = Host::with(MetadataService::usual());
    let arguments = ["--helper", &helper, "--helper-key-file", &key];
    let agent = host.serve(&arguments).await;
    let socket = agent.socket.clone();
    let node = || world::node(&socket);

    soon("staged", || async { node().node_stage_volume(stage()).await }).await;
    let again = Instant::now();
    node().node_stage_volume(stage()).await.unwrap();
    println!("staged again: in {:?}", again.elapsed());
    soon("published", || async { node().node_publish_volume(world::publish()).await }).await;
    let stats = || async {
        let request = csi::NodeGetVolumeStatsRequest {
            staging_target_path: STAGING.to_owned(),
            ..world::stats()
        };
        node().node_get_volume_stats(request).await
    };
    let bytes = |answer: tonic::Response<csi::NodeGetVolumeStatsResponse>| {
        let usage = answer.into_inner().usage;
        let bytes = usage.iter().find(|one| one.unit == Unit::Bytes as i32);
        bytes.expect("bytes").total
    };
    let before = bytes(soon("measured", stats).await);
    let grows = std::env::var("EBS_CSI_VM_DISK_GROWS").as_deref() != Ok("no");
    if grows {
        soon("grown", || async {
            let range = csi::CapacityRange { required_bytes: GROWN, limit_bytes: 0 };
            let request = csi::NodeExpandVolumeRequest {
                staging_target_path: STAGING.to_owned(),
                capacity_range: Some(range),
                ..world::expand()
            };
            node().node_expand_volume(request).await
        })
        .await;
    }

    // The machine kills the helper when it has seen all of this, and starts it again some seconds
    // later.
    let started = Instant::now();
    let mut lost = false;
    let after = loop {
        match stats().await {
            Ok(answer) if lost => break bytes(answer),
            Ok(_) => {}
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                lost = true;
            }
        }
        assert!(started.elapsed() < LONG, "lost: {lost}");
        tokio::time::sleep(PAUSE).await;
    };
    println!("found again: after {:?}", started.elapsed());
    assert_eq!(after > before, grows, "{before} {after}");

    soon("unpublished", || async { node().node_unpublish_volume(world::unpublish()).await }).await;
    soon("unstaged", || async { node().node_unstage_volume(world::unstage()).await }).await;
    let log = agent.log();
    let chosen = log.contains("chosen=vsock");
    assert_eq!(chosen, helper.starts_with("vsock://"), "{log}");
}

/// The machine's helper cuts off an agent that has another key, and serves the next one.
#[tokio::test]
#[ignore = "deploy/testing/vm/run starts the virtual machine"]
async fn agent_with_other_key_stages_nothing() {
    let helper = std::env::var("EBS_CSI_VM_HELPER").expect("EBS_CSI_VM_HELPER is not set");
    let host = Host::with(MetadataService::usual());
    let key = host.path().join("other-key");
    std::fs::write(&key, [0x55; 32]).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o400);
    std::fs::set_permissions(&key, mode).unwrap();
    let key = key.to_str().unwrap();
    let arguments = ["--helper", &helper, "--helper-key-file", key];
    let agent = host.serve(&arguments).await;
    // Until the machine has booted, nobody listens.
    let started = Instant::now();
    loop {
        let mut node = world::node(&agent.socket);
        let status = world::refused(node.node_stage_volume(stage()).await, Code::Unavailable);
        if status.message().contains("does not have this node-agent's key") {
            break;
        }
        assert!(started.elapsed() < LONG, "{status}");
        tokio::time::sleep(PAUSE).await;
    }
}

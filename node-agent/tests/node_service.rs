//! The node service over a real gRPC connection, with a scripted mount-helper behind it.

#[path = "scripted/helper.rs"]
mod scripted_helper;
#[path = "scripted/world.rs"]
mod world;

use std::time::Duration;

use ebs_csi_proto::csi::{self, volume_usage::Unit};
use ebs_csi_wire::{
    Done, Failed, HeldVolume, Inventory, KubeletPath, Operation, Outcome, Refusal, Staged, Step,
    VolumeId,
};
use scripted_helper::{Act, Greeting, ScriptedHelper};
use tonic::Code;
use world::{STAGING, TARGET, VOLUME, World, block, publish, single_writer, stage, timed};

#[tokio::test]
async fn a_volumes_whole_life_is_asked_of_the_helper_in_order() {
    let world = World::start().await;
    let mut node = world.node();
    node.node_stage_volume(stage()).await.unwrap();
    node.node_publish_volume(publish()).await.unwrap();
    let usage = node
        .node_get_volume_stats(csi::NodeGetVolumeStatsRequest {
            volume_id: VOLUME.to_owned(),
            volume_path: TARGET.to_owned(),
            ..Default::default()
        })
        .await
        .unwrap()
        .into_inner()
        .usage;
    assert_eq!(usage.len(), 2);
    assert_eq!(
        (
            usage[0].unit,
            usage[0].total,
            usage[0].used,
            usage[0].available
        ),
        (Unit::Bytes as i32, 1000, 300, 650)
    );
    assert_eq!((usage[1].unit, usage[1].total), (Unit::Inodes as i32, 100));
    let expanded = node
        .node_expand_volume(csi::NodeExpandVolumeRequest {
            volume_id: VOLUME.to_owned(),
            volume_path: TARGET.to_owned(),
            ..Default::default()
        })
        .await
        .unwrap();
    assert_eq!(expanded.into_inner().capacity_bytes, 2 << 30);
    node.node_unpublish_volume(world::unpublish())
        .await
        .unwrap();
    node.node_unstage_volume(world::unstage()).await.unwrap();
    let asked: Vec<&str> = world.helper.asked().iter().map(Operation::name).collect();
    assert_eq!(
        asked,
        [
            "stage",
            "publish-filesystem",
            "stats",
            "expand",
            "unpublish",
            "unstage"
        ]
    );
    assert_eq!(
        world.helper.connections(),
        1,
        "one connection serves them one by one"
    );
}

#[tokio::test]
async fn the_node_says_who_and_where_it_is_and_what_it_can() {
    let world = World::start().await;
    let mut node = world.node();
    let info = node
        .node_get_info(csi::NodeGetInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(info.node_id, world::INSTANCE);
    assert_eq!(info.max_volumes_per_node, 31);
    let segments = info.accessible_topology.unwrap().segments;
    assert_eq!(segments["topology.ebs.csi.aws.com/zone"], "us-east-1a");
    let capabilities = node
        .node_get_capabilities(csi::NodeGetCapabilitiesRequest {})
        .await
        .unwrap();
    assert_eq!(capabilities.into_inner().capabilities.len(), 4);
    let mut identity = world.identity();
    let plugin = identity
        .get_plugin_info(csi::GetPluginInfoRequest {})
        .await
        .unwrap();
    assert_eq!(plugin.into_inner().name, "ebs.csi.aws.com");
    let probe = identity.probe(csi::ProbeRequest {}).await.unwrap();
    assert_eq!(probe.into_inner().ready, Some(true));
    assert!(
        world.helper.asked().is_empty(),
        "none of it needs the helper"
    );
}

#[tokio::test]
async fn a_bad_request_never_reaches_the_helper() {
    let world = World::start().await;
    let mut node = world.node();
    let mut request = stage();
    request.staging_target_path = "/var/lib/kubelet/../../etc".to_owned();
    let status = node.node_stage_volume(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("staging_target_path"), "{status}");
    let mut request = stage();
    request.volume_id = "vol-unheard-of".to_owned();
    let status = node.node_stage_volume(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(world.helper.connections(), 0);
}

#[tokio::test]
async fn a_raw_block_volume_is_published_without_staging() {
    let world = World::start().await;
    let mut node = world.node();
    let mut request = stage();
    request.volume_capability = Some(block());
    node.node_stage_volume(request).await.unwrap();
    assert!(world.helper.asked().is_empty());
    let mut request = publish();
    request.volume_capability = Some(block());
    node.node_publish_volume(request).await.unwrap();
    assert!(matches!(
        world.helper.asked()[..],
        [Operation::PublishBlock(_)]
    ));
}

#[tokio::test]
async fn each_refusal_becomes_its_status_with_words() {
    let world = World::start().await;
    let mut node = world.node();
    for refusal in Refusal::ALL.iter().filter(|r| **r != Refusal::Busy) {
        world.helper.then([Act::Answer(Outcome::from(*refusal))]);
        let status = node.node_stage_volume(stage()).await.unwrap_err();
        assert!(
            status.message().contains(refusal.explain()),
            "{refusal:?}: {status}"
        );
        assert!(status.message().contains(VOLUME), "{refusal:?}: {status}");
        assert_ne!(status.code(), Code::Internal, "{refusal:?}");
    }
}

#[tokio::test]
async fn each_failed_step_becomes_its_status_with_words() {
    let world = World::start().await;
    let mut node = world.node();
    for step in Step::ALL {
        let failed = Outcome::Failed(Failed::call(*step, 5));
        world.helper.then([Act::Answer(failed)]);
        let status = node.node_stage_volume(stage()).await.unwrap_err();
        let want = match step {
            Step::Grow | Step::Sync => Code::Aborted,
            _ => Code::Internal,
        };
        assert_eq!(status.code(), want, "{step:?}: {status}");
    }
}

#[tokio::test]
async fn work_that_takes_longer_than_the_caller_waits_is_joined_by_the_retry() {
    let world = World::start().await;
    let mut node = world.node();
    world.helper.then([Act::Answer(Outcome::Pending)]);
    let status = node
        .node_stage_volume(timed(stage(), Duration::from_secs(20)))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(status.message().contains("joins"), "{status}");
    world
        .helper
        .then([Act::Answer(Outcome::Staged(Staged::default()))]);
    node.node_stage_volume(timed(stage(), Duration::from_secs(20)))
        .await
        .unwrap();
    let asked = world.helper.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0], asked[1], "the retry asks the very same");
    let longest = Duration::from_secs(20);
    for wait in world.helper.waits() {
        assert!(
            wait < longest,
            "the helper answers before the caller gives up: {wait:?}"
        );
    }
}

#[tokio::test]
async fn work_that_takes_longer_than_ours_is_told_as_pending() {
    let world = World::start().await;
    world.helper.then([Act::Answer(Outcome::Pending)]);
    let status = world.node().node_stage_volume(stage()).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
}

#[tokio::test]
async fn a_busy_volume_is_asked_about_again_while_the_caller_waits() {
    let world = World::start().await;
    let busy = || Act::Answer(Refusal::Busy.into());
    world
        .helper
        .then([busy(), busy(), Act::Answer(Outcome::Done(Done::default()))]);
    world.node().node_publish_volume(publish()).await.unwrap();
    assert_eq!(world.helper.asked().len(), 3);
    world.helper.then(std::iter::repeat_with(busy).take(1000));
    let status = world
        .node()
        .node_publish_volume(timed(publish(), Duration::from_millis(500)))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
}

#[tokio::test]
async fn a_client_that_gives_up_does_not_stop_the_work() {
    let world = World::start().await;
    world.helper.then([Act::Slowly(
        Duration::from_millis(300),
        Outcome::Staged(Staged::default()),
    )]);
    let mut node = world.node();
    let given_up =
        tokio::time::timeout(Duration::from_millis(100), node.node_stage_volume(stage()));
    assert!(given_up.await.is_err());
    // Another connection is used, since the first one still carries the old answer.
    world.node().node_stage_volume(stage()).await.unwrap();
    assert_eq!(world.helper.asked().len(), 2);
    assert_eq!(world.helper.connections(), 2);
}

#[tokio::test]
async fn requests_about_one_volume_wait_for_each_other_and_other_volumes_do_not() {
    let world = World::start().await;
    world.helper.then([Act::Hang]);
    let mut hanging = world.node();
    let hung = tokio::spawn(async move { hanging.node_stage_volume(stage()).await });
    while world.helper.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = world
        .node()
        .node_unstage_volume(timed(world::unstage(), Duration::from_millis(300)))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
    assert_eq!(
        world.helper.asked().len(),
        1,
        "the second request never reached the helper"
    );
    let mut other = world::unstage();
    other.volume_id = "vol-0fedcba9876543210".to_owned();
    world.node().node_unstage_volume(other).await.unwrap();
    hung.abort();
}

#[tokio::test]
async fn a_single_writer_gets_one_target_and_several_writers_more() {
    let world = World::start().await;
    let mut node = world.node();
    let held = |path: &str, staged| HeldVolume {
        volume: VolumeId::parse(VOLUME).unwrap(),
        path: KubeletPath::parse(path).unwrap(),
        read_only: false,
        staged,
    };
    let inventory = |volumes: Vec<HeldVolume>| {
        Act::Answer(Outcome::Inventory(Inventory {
            volumes,
            operations: Vec::new(),
            more: false,
        }))
    };
    let mut request = publish();
    request.volume_capability = Some(single_writer());
    // Staged, and published at this very target: a retry.
    world
        .helper
        .then([inventory(vec![held(STAGING, true), held(TARGET, false)])]);
    node.node_publish_volume(request.clone()).await.unwrap();
    world.helper.then([inventory(vec![
        held(STAGING, true),
        held("/k/other", false),
    ])]);
    let status = node.node_publish_volume(request).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("/k/other"), "{status}");
    // Without that mode nobody asks where else the volume is.
    node.node_publish_volume(publish()).await.unwrap();
    let asked: Vec<&str> = world.helper.asked().iter().map(Operation::name).collect();
    assert_eq!(
        asked,
        [
            "inspect",
            "publish-filesystem",
            "inspect",
            "publish-filesystem"
        ]
    );
}

#[tokio::test]
async fn a_node_local_volume_is_found_by_its_path_when_it_is_undone() {
    let world = World::start().await;
    let held = HeldVolume {
        volume: VolumeId::parse(VOLUME).unwrap(),
        path: KubeletPath::parse(STAGING).unwrap(),
        read_only: false,
        staged: true,
    };
    world
        .helper
        .then([Act::Answer(Outcome::Inventory(Inventory {
            volumes: vec![held],
            operations: Vec::new(),
            more: false,
        }))]);
    let mut request = world::unstage();
    request.volume_id = "local-ebs://dev/xvdbz".to_owned();
    let mut node = world.node();
    node.node_unstage_volume(request.clone()).await.unwrap();
    match &world.helper.asked()[..] {
        [Operation::Inspect(_), Operation::Unstage(ask)] => {
            assert_eq!(ask.volume.as_str(), VOLUME);
        }
        other => panic!("{other:?}"),
    }
    // Not there any more.
    node.node_unstage_volume(request).await.unwrap();
    // And an id that nobody issued was never here.
    let mut request = world::unpublish();
    request.volume_id = "vol-unheard-of".to_owned();
    node.node_unpublish_volume(request).await.unwrap();
    assert_eq!(world.helper.asked().len(), 3);
}

#[tokio::test]
async fn a_helper_of_another_protocol_is_told_as_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let helper = ScriptedHelper::start(&dir.path().join("helper.sock"), Greeting::OtherVersion);
    let world = World::with(dir, helper).await;
    let status = world.node().node_stage_volume(stage()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("release"), "{status}");
}

#[tokio::test]
async fn health_is_asked_on_the_csi_socket_as_grpc_defines_it() {
    use ebs_csi_proto::health::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
    let world = World::start().await;
    let check = async |service: &str| -> Result<ServingStatus, Code> {
        let mut client = tonic::client::Grpc::new(world::channel(&world.socket));
        client.ready().await.unwrap();
        let request = tonic::Request::new(HealthCheckRequest {
            service: service.to_owned(),
        });
        let path = "/grpc.health.v1.Health/Check".parse().unwrap();
        let codec = tonic_prost::ProstCodec::default();
        let answer: Result<tonic::Response<HealthCheckResponse>, _> =
            client.unary(request, path, codec).await;
        answer
            .map(|answer| answer.into_inner().status())
            .map_err(|status| status.code())
    };
    assert_eq!(check("").await, Ok(ServingStatus::Serving));
    assert_eq!(check("readiness").await, Ok(ServingStatus::Serving));
    assert_eq!(check("other").await, Err(Code::NotFound));
    drop(world.helper);
    assert_eq!(check("liveness").await, Ok(ServingStatus::Serving));
    assert_eq!(check("readiness").await, Ok(ServingStatus::NotServing));
}

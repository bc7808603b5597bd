//! The node service over a real gRPC connection, with a scripted mount-helper behind it.

#[path = "scripted/helper.rs"]
mod scripted_helper;
#[path = "scripted/world.rs"]
mod world;

use std::time::Duration;

use ebs_csi_proto::csi::node_client::NodeClient;
use ebs_csi_proto::csi::{self, volume_usage::Unit};
use ebs_csi_wire::{Done, Failed, Operation, Outcome, Refusal, Staged, Step, Usage};
use scripted_helper::{Act, Greeting};
use tonic::Code;
use tonic::transport::Channel;
use world::{
    STAGING, TARGET, VOLUME, World, block, held, publish, refused, single_writer, stage, stats,
    timed,
};

/// The helper gets stage, publish, stats, expand, unpublish and unstage over 1 connection.
#[tokio::test]
async fn volume_lifecycle_calls_reach_helper_in_order() {
    let world = World::start().await;
    let mut node = world.node();
    node.node_stage_volume(stage()).await.unwrap();
    node.node_publish_volume(publish()).await.unwrap();
    let usage = node.node_get_volume_stats(stats()).await.unwrap().into_inner().usage;
    assert_eq!(usage.len(), 2);
    assert_eq!(
        (usage[0].unit, usage[0].total, usage[0].used, usage[0].available),
        (Unit::Bytes as i32, 1000, 300, 650)
    );
    assert_eq!((usage[1].unit, usage[1].total), (Unit::Inodes as i32, 100));
    let expanded = node.node_expand_volume(world::expand()).await.unwrap();
    assert_eq!(expanded.into_inner().capacity_bytes, 2 << 30);
    node.node_unpublish_volume(world::unpublish()).await.unwrap();
    node.node_unstage_volume(world::unstage()).await.unwrap();
    let names: Vec<&str> =
        world.helper.requests().iter().map(|one| one.properties().name).collect();
    assert_eq!(names, ["stage", "publish-filesystem", "stats", "expand", "unpublish", "unstage"]);
    assert_eq!(world.helper.connections(), 1, "one connection serves them one by one");
}

/// The node reports its instance ID, zone, volume limit and 4 capabilities; the driver reports its
/// name and readiness.
#[tokio::test]
async fn identity_and_node_info_need_no_helper_request() {
    let world = World::start().await;
    let mut node = world.node();
    let info = node.node_get_info(csi::NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.node_id, world::INSTANCE);
    assert_eq!(info.max_volumes_per_node, 31);
    let segments = info.accessible_topology.unwrap().segments;
    assert_eq!(segments["topology.ebs.csi.aws.com/zone"], "us-east-1a");
    let capabilities =
        node.node_get_capabilities(csi::NodeGetCapabilitiesRequest {}).await.unwrap();
    assert_eq!(capabilities.into_inner().capabilities.len(), 4);
    let mut identity = world.identity();
    let plugin = identity.get_plugin_info(csi::GetPluginInfoRequest {}).await.unwrap();
    assert_eq!(plugin.into_inner().name, "ebs.csi.aws.com");
    let probe = identity.probe(csi::ProbeRequest {}).await.unwrap();
    assert_eq!(probe.into_inner().ready, Some(true));
    assert!(world.helper.requests().is_empty(), "none of it needs the helper");
}

#[tokio::test]
async fn a_bad_request_never_reaches_the_helper() {
    let world = World::start().await;
    let mut node = world.node();
    let mut request = stage();
    request.staging_target_path = "/var/lib/kubelet/../../etc".to_owned();
    let status = refused(node.node_stage_volume(request).await, Code::InvalidArgument);
    assert!(status.message().contains("staging_target_path"), "{status}");
    let mut request = stage();
    request.volume_id = "vol-unheard-of".to_owned();
    refused(node.node_stage_volume(request).await, Code::NotFound);
    assert_eq!(world.helper.connections(), 0);
}

#[tokio::test]
async fn a_raw_block_volume_is_published_without_staging() {
    let world = World::start().await;
    let mut node = world.node();
    let mut request = stage();
    request.volume_capability = Some(block());
    node.node_stage_volume(request).await.unwrap();
    assert!(world.helper.requests().is_empty());
    let mut request = publish();
    request.volume_capability = Some(block());
    node.node_publish_volume(request).await.unwrap();
    assert!(matches!(world.helper.requests()[..], [Operation::PublishBlock(_)]));
}

/// The status is DeadlineExceeded and says that a retry joins the operation, which continues in the
/// helper.
#[tokio::test]
async fn stage_retry_after_deadline_repeats_same_helper_request() {
    let world = World::start().await;
    let mut node = world.node();
    world.helper.then([Act::Answer(Outcome::Pending)]);
    let status = refused(
        node.node_stage_volume(timed(stage(), Duration::from_secs(20))).await,
        Code::DeadlineExceeded,
    );
    assert!(status.message().contains("joins"), "{status}");
    world.helper.then([Act::Answer(Outcome::Staged(Staged::default()))]);
    node.node_stage_volume(timed(stage(), Duration::from_secs(20))).await.unwrap();
    let requests = world.helper.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0], requests[1]);
    let longest = Duration::from_secs(20);
    for wait in world.helper.waits() {
        assert!(wait < longest, "the helper answers before the caller gives up: {wait:?}");
    }
}

/// A caller without a deadline still waits, so the status tells the caller to retry.
#[tokio::test]
async fn pending_without_caller_deadline_returns_aborted() {
    let world = World::start().await;
    world.helper.then([Act::Answer(Outcome::Pending)]);
    refused(world.node().node_stage_volume(stage()).await, Code::Aborted);
}

#[tokio::test]
async fn busy_volume_is_retried_until_deadline_then_aborted() {
    let world = World::start().await;
    let busy = || Act::Answer(Refusal::Busy.into());
    world.helper.then([busy(), busy(), Act::Answer(Outcome::Done(Done::default()))]);
    world.node().node_publish_volume(publish()).await.unwrap();
    assert_eq!(world.helper.requests().len(), 3);
    world.helper.then(std::iter::repeat_with(busy).take(1000));
    refused(
        world.node().node_publish_volume(timed(publish(), Duration::from_millis(500))).await,
        Code::Aborted,
    );
}

/// The outcomes are a stage of unknown origin and an unstage while another mount namespace keeps
/// files open.
#[tokio::test]
async fn unusual_helper_outcomes_are_counted_in_metrics() {
    let world = World::start().await;
    let unknown_origin = Staged { untold: true, ..Staged::default() };
    let copied = Done { copied: true, ..Done::default() };
    world
        .helper
        .then([Act::Answer(Outcome::Staged(unknown_origin)), Act::Answer(Outcome::Done(copied))]);
    let mut node = world.node();
    // Each call once with the unusual outcome and once with the usual one.
    for _ in 0..2 {
        node.node_stage_volume(stage()).await.unwrap();
        node.node_unstage_volume(world::unstage()).await.unwrap();
    }
    let page = world.metrics.page();
    for line in [
        "ebs_csi_node_agent_staged_origin_untold_total 1",
        "ebs_csi_node_agent_released_beside_copy_total 1",
        "ebs_csi_node_agent_helper_landlock 7",
        "ebs_csi_node_agent_helper_wider_settings 2",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}\n{page}");
    }
}

/// The cancelled call's connection still delivers the old answer, so the agent does not reuse the
/// connection.
#[tokio::test]
async fn stage_after_cancelled_call_uses_new_connection() {
    let world = World::start().await;
    world
        .helper
        .then([Act::Slowly(Duration::from_millis(300), Outcome::Staged(Staged::default()))]);
    let mut node = world.node();
    let given_up = tokio::spawn(async move { node.node_stage_volume(stage()).await });
    world.helper.wait_for_requests(1).await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    // The agent uses another connection, since the first one still delivers the old answer.
    world.node().node_stage_volume(stage()).await.unwrap();
    assert_eq!(world.helper.requests().len(), 2);
    assert_eq!(world.helper.connections(), 2);
}

/// The waiting request ends with Aborted at its deadline and never reaches the helper.
#[tokio::test]
async fn same_volume_requests_wait_other_volumes_proceed() {
    let world = World::start().await;
    world.helper.then([Act::Hang]);
    let mut hanging = world.node();
    let hung = tokio::spawn(async move { hanging.node_stage_volume(stage()).await });
    world.helper.wait_for_requests(1).await;
    refused(
        world.node().node_unstage_volume(timed(world::unstage(), Duration::from_secs(2))).await,
        Code::Aborted,
    );
    assert_eq!(world.helper.requests().len(), 1, "the second request never reached the helper");
    let mut other = world::unstage();
    other.volume_id = "vol-0fedcba9876543210".to_owned();
    world.node().node_unstage_volume(other).await.unwrap();
    hung.abort();
}

/// A retry at the same target succeeds. For a volume without SINGLE_NODE_SINGLE_WRITER the agent
/// does not ask the helper for the volume's mounts.
#[tokio::test]
async fn single_writer_publish_at_second_target_is_refused() {
    let world = World::start().await;
    let mut node = world.node();
    let mut request = publish();
    request.volume_capability = Some(single_writer());
    // The volume is staged, and published at the requested target: a retry.
    world.helper.then([Act::holds([held(STAGING, true), held(TARGET, false)])]);
    node.node_publish_volume(request.clone()).await.unwrap();
    world.helper.then([Act::holds([held(STAGING, true), held("/k/other", false)])]);
    let status = refused(node.node_publish_volume(request).await, Code::FailedPrecondition);
    assert!(status.message().contains("/k/other"), "{status}");
    // Without that access mode the agent does not ask where else the volume is published.
    node.node_publish_volume(publish()).await.unwrap();
    let names: Vec<&str> =
        world.helper.requests().iter().map(|one| one.properties().name).collect();
    assert_eq!(names, ["inspect", "publish-filesystem", "inspect", "publish-filesystem"]);
}

/// A retry after the volume is gone succeeds, and so does the unpublish of an ID that EC2 never
/// issued.
#[tokio::test]
async fn node_local_unstage_finds_volume_by_staging_path() {
    let world = World::start().await;
    world.helper.then([Act::holds([held(STAGING, true)])]);
    let mut request = world::unstage();
    request.volume_id = "local-ebs://dev/xvdbz".to_owned();
    let mut node = world.node();
    node.node_unstage_volume(request.clone()).await.unwrap();
    match &world.helper.requests()[..] {
        [Operation::Inspect(_), Operation::Unstage(unstage)] => {
            assert_eq!(unstage.volume.as_str(), VOLUME);
        }
        other => panic!("{other:?}"),
    }
    // The volume is not staged any more.
    node.node_unstage_volume(request).await.unwrap();
    // An id that EC2 never issued was never staged on this node.
    let mut request = world::unpublish();
    request.volume_id = "vol-unheard-of".to_owned();
    node.node_unpublish_volume(request).await.unwrap();
    assert_eq!(world.helper.requests().len(), 3);
}

#[tokio::test]
async fn helper_with_other_protocol_version_returns_unavailable() {
    let world = World::with_greeting(Greeting::OtherVersion).await;
    let status = refused(world.node().node_stage_volume(stage()).await, Code::Unavailable);
    assert!(status.message().contains("release"), "{status}");
}

/// The CSI socket answers the standard gRPC health service; an unknown service name is NotFound.
#[tokio::test]
async fn grpc_readiness_follows_helper_while_liveness_keeps_serving() {
    use ebs_csi_proto::health::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
    let world = World::start().await;
    let check = async |service: &str| -> Result<ServingStatus, Code> {
        let mut client = tonic::client::Grpc::new(world::channel(&world.socket));
        client.ready().await.unwrap();
        let request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
        let path = "/grpc.health.v1.Health/Check".parse().unwrap();
        let codec = tonic_prost::ProstCodec::default();
        let answer: Result<tonic::Response<HealthCheckResponse>, _> =
            client.unary(request, path, codec).await;
        answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
    };
    assert_eq!(check("").await, Ok(ServingStatus::Serving));
    assert_eq!(check("readiness").await, Ok(ServingStatus::Serving));
    assert_eq!(check("other").await, Err(Code::NotFound));
    drop(world.helper);
    assert_eq!(check("liveness").await, Ok(ServingStatus::Serving));
    assert_eq!(check("readiness").await, Ok(ServingStatus::NotServing));
}

fn health_request() -> csi::NodeGetVolumeHealthRequest {
    csi::NodeGetVolumeHealthRequest {
        volume_id: VOLUME.to_owned(),
        volume_publish_path: TARGET.to_owned(),
        staging_target_path: STAGING.to_owned(),
    }
}

/// Returns what is wrong with the volume.
async fn health(node: &mut NodeClient<Channel>) -> Vec<csi::volume_health::VolumeHealthEntry> {
    let answer = node.node_get_volume_health(health_request()).await.unwrap();
    let health = answer.into_inner().volume_health.unwrap();
    assert_eq!(health.volume_id, VOLUME);
    health.health_statuses
}

/// Without cached stats the status is DeadlineExceeded. Once the file system answers again, the
/// node reports no failure.
#[tokio::test]
async fn hung_filesystem_serves_cached_stats_and_reports_inaccessible() {
    let world = World::with_health().await;
    let mut node = world.node();
    let pending = || Act::Answer(Outcome::Pending);

    // No stats are cached yet.
    world.helper.then([pending()]);
    refused(node.node_get_volume_stats(stats()).await, Code::DeadlineExceeded);

    let before = node.node_get_volume_stats(stats()).await.unwrap();
    assert!(health(&mut node).await.is_empty());

    world.helper.then([pending()]);
    let cached = node.node_get_volume_stats(stats()).await.unwrap();
    assert_eq!(cached.into_inner().usage, before.into_inner().usage);
    let waits = world.helper.waits();
    assert!(
        waits.iter().all(|wait| *wait <= Duration::from_secs(5)),
        "a hung file system delays no call longer: {waits:?}"
    );

    world.helper.then([pending()]);
    let entries = health(&mut node).await;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].status(), csi::VolumeHealthErrorType::Inaccessible);
    assert_eq!(entries[0].reason, "FilesystemHangs");
    let request = csi::NodeGetStorageHealthRequest::default();
    let node_wide = node.node_get_storage_health(request.clone()).await.unwrap();
    let node_wide = node_wide.into_inner().backend_health;
    assert_eq!(node_wide[0].reason, "FilesystemsHang");
    assert!(node_wide[0].message.contains(VOLUME));

    // The file system answers again.
    node.node_get_volume_stats(stats()).await.unwrap();
    let node_wide = node.node_get_storage_health(request).await.unwrap();
    assert!(node_wide.into_inner().backend_health.is_empty());
}

/// A volume that is neither published nor staged has no health entry. The storage health reports a
/// stopped mount-helper.
#[tokio::test]
async fn volume_health_reports_file_system_faults_by_reason() {
    let world = World::with_health().await;
    let mut node = world.node();
    let failed = Outcome::Failed(Failed::call(Step::Stat, 5));
    let elsewhere = || Act::Answer(Outcome::Refused(Refusal::VolumeNotAtPath.into()));

    world.helper.then([Act::Answer(failed)]);
    let entries = health(&mut node).await;
    assert_eq!(entries[0].reason, "FilesystemFails");
    assert!(entries[0].message.contains("os error 5"), "{entries:?}");

    use csi::VolumeHealthErrorType::{Degraded, Inaccessible};
    let usual = Usage::default();
    for (usage, status, reason) in [
        (Usage { turned_read_only: true, errors: 2, ..usual }, Degraded, "FilesystemReadOnly"),
        (Usage { shut_down: true, ..usual }, Inaccessible, "FilesystemShutDown"),
        (Usage { errors: 1, ..usual }, Degraded, "FilesystemErrors"),
    ] {
        world.helper.then([Act::Answer(Outcome::Usage(usage))]);
        let entries = health(&mut node).await;
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].status, status as i32);
        assert_eq!(entries[0].reason, reason);
    }

    // First the volume is not published, but staged and healthy; then it is not staged either.
    for acts in [vec![elsewhere()], vec![elsewhere(), elsewhere()]] {
        world.helper.then(acts);
        assert!(health(&mut node).await.is_empty());
    }

    for (request, code) in [
        (csi::NodeGetVolumeHealthRequest::default(), Code::InvalidArgument),
        (
            csi::NodeGetVolumeHealthRequest { volume_id: "none".to_owned(), ..health_request() },
            Code::NotFound,
        ),
        (
            csi::NodeGetVolumeHealthRequest {
                staging_target_path: "relative".to_owned(),
                ..health_request()
            },
            Code::InvalidArgument,
        ),
    ] {
        refused(node.node_get_volume_health(request).await, code);
    }

    let request = csi::NodeGetStorageHealthRequest::default();
    drop(world.helper);
    let answer = node.node_get_storage_health(request).await.unwrap();
    assert_eq!(answer.into_inner().backend_health[0].reason, "MountHelperDown");
}

#[tokio::test]
async fn node_get_info_recounts_attachments_on_each_call() {
    let world = World::start().await;
    let mut node = world.node();
    let mut max = async || {
        let info = node.node_get_info(csi::NodeGetInfoRequest {}).await;
        info.unwrap().into_inner().max_volumes_per_node
    };
    assert_eq!(max().await, 31, "32 of an m7i.large, less the root volume");
    let nvme = |number: u8, serial: &str| {
        let controller = world.dir.path().join(format!("sys/class/nvme/nvme{number}"));
        std::fs::create_dir_all(&controller).unwrap();
        std::fs::write(controller.join("model"), "Amazon Elastic Block Store\n").unwrap();
        std::fs::write(controller.join("serial"), serial).unwrap();
    };
    nvme(0, "vol0123456789abcdef0");
    // A disk that was attached since then and that the helper holds belongs to the driver.
    world.helper.then([Act::holds([held(STAGING, true)])]);
    assert_eq!(max().await, 32);
}

/// Without the flag the capabilities are absent and both calls are Unimplemented.
#[tokio::test]
async fn alpha_health_rpcs_require_their_flag() {
    use csi::node_service_capability::{Type, rpc};
    for offered in [false, true] {
        let world = if offered { World::with_health().await } else { World::start().await };
        let mut node = world.node();
        let request = csi::NodeGetCapabilitiesRequest {};
        let answer = node.node_get_capabilities(request).await.unwrap().into_inner();
        let capabilities = answer.capabilities;
        for kind in [rpc::Type::GetVolumeHealth, rpc::Type::GetStorageHealth] {
            let has = capabilities.iter().any(|capability| {
                matches!(&capability.r#type, Some(Type::Rpc(rpc)) if rpc.r#type() == kind)
            });
            assert_eq!(has, offered, "{kind:?}");
        }
        let request = csi::NodeGetStorageHealthRequest::default();
        let codes = [
            node.node_get_volume_health(health_request()).await.map(drop),
            node.node_get_storage_health(request).await.map(drop),
        ]
        .map(|answer| answer.map_err(|status| status.code()));
        let want = if offered { Ok(()) } else { Err(Code::Unimplemented) };
        assert_eq!(codes, [want, want]);
    }
}

//! A mount-helper that hangs, crashes, gives invalid answers or restarts.

#[path = "scripted/helper.rs"]
mod scripted_helper;
#[path = "scripted/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_wire::{Done, Inventory, LogPage, Outcome, Staged};
use scripted_helper::{Act, Greeting, ScriptedHelper};
use tonic::Code;
use world::{World, publish, refused, stage, timed};

const WAIT: Duration = Duration::from_millis(400);

#[tokio::test]
async fn missing_helper_returns_unavailable_with_address() {
    let world = World::start().await;
    let World { dir, helper, .. } = &world;
    let path = dir.path().join("helper.sock");
    let gone = std::fs::rename(&path, dir.path().join("elsewhere"));
    gone.unwrap();
    let status = refused(world.node().node_stage_volume(stage()).await, Code::Unavailable);
    assert!(status.message().contains("helper.sock"), "{status}");
    assert_eq!(helper.connections(), 0);
}

/// The kernel gives a listener the user of the thread that called listen(2).
#[tokio::test]
async fn socket_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let World { dir, helper, socket, .. } = World::start().await;
    let path = dir.path().join("helper.sock");
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    let hostile = std::thread::spawn(move || {
        let other = rustix::thread::Uid::from_raw(65533);
        rustix::thread::set_thread_res_uid(other, other, other).unwrap();
        ScriptedHelper::start(&path, Greeting::Usual)
    });
    let hostile = hostile.join().unwrap();
    let status = refused(world::node(&socket).node_stage_volume(stage()).await, Code::Unavailable);
    assert!(status.message().contains("user 65533 listens"), "{status}");
    assert!(hostile.requests().is_empty() && helper.connections() == 0);
}

/// The status is Unavailable, DeadlineExceeded or Cancelled, whichever side gives up first.
#[tokio::test]
async fn hung_helper_fails_stage_without_connection_reuse() {
    let world = World::start().await;
    world.helper.then([Act::Hang]);
    let status = world.node().node_stage_volume(timed(stage(), WAIT)).await.unwrap_err();
    let codes = [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled];
    assert!(codes.contains(&status.code()), "{status}");
    // The agent does not use the hung connection again.
    world.node().node_stage_volume(stage()).await.unwrap();
    assert_eq!(world.helper.connections(), 2);
}

#[tokio::test]
async fn helper_without_greeting_returns_unavailable() {
    let world = World::with_greeting(Greeting::Silent).await;
    refused(world.node().node_stage_volume(stage()).await, Code::Unavailable);
}

/// Crashes, truncated or malformed frames, wrong request ids and answers of the wrong kind all
/// count as invalid.
#[tokio::test]
async fn invalid_helper_answers_return_unavailable_then_recover() {
    let world = World::start().await;
    let done = || Outcome::Staged(Staged::default());
    let faults = [
        Act::Crash,
        Act::CutShort(done()),
        Act::WrongId(done()),
        Act::Bytes(vec![0xff; 8]),
        Act::Bytes(vec![0, 0, 0, 0]),
        Act::Bytes(vec![3, 0, 0, 0, 0xff, 0xff, 0xff]),
        Act::Answer(Outcome::Done(Done::default())),
        Act::Answer(Outcome::LogPage(LogPage { page: vec![1] })),
    ];
    for (index, fault) in faults.into_iter().enumerate() {
        let shown = format!("{fault:?}");
        world.helper.then([fault]);
        let status = world.node().node_stage_volume(stage()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{index} {shown}: {status}");
    }
    world.node().node_stage_volume(stage()).await.unwrap();
}

/// It would fill the agent's memory until the deadline.
#[tokio::test]
async fn inventory_without_end_returns_unavailable() {
    let one = vec![world::held(world::STAGING, true)];
    for (volumes, pages) in [(Vec::new(), 1), (one, 256)] {
        let world = World::start().await;
        let page = Inventory { volumes, operations: Vec::new(), more: true };
        let page = Act::Answer(Outcome::Inventory(page));
        world.helper.then(std::iter::repeat_with(|| page.clone()).take(pages));
        let mut request = publish();
        request.volume_capability = Some(world::single_writer());
        refused(world.node().node_publish_volume(request).await, Code::Unavailable);
        assert_eq!(world.helper.requests().len(), pages);
    }
}

#[tokio::test]
async fn restarted_helper_is_reconnected_without_error() {
    let World { dir, helper, socket, .. } = World::start().await;
    let mut node = world::node(&socket);
    node.node_stage_volume(stage()).await.unwrap();
    drop(helper);
    let path = dir.path().join("helper.sock");
    // The helper restarts while the next request waits for it.
    let later = path.clone();
    let returning = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        ScriptedHelper::start(&later, Greeting::Usual)
    });
    node.node_publish_volume(publish()).await.unwrap();
    let helper = returning.join().unwrap();
    assert_eq!(helper.requests().len(), 1);
}

/// The number exceeds the agent's limit of 40 quick requests at a time, so some of them wait.
#[tokio::test]
async fn all_60_parallel_publishes_are_answered() {
    let world = World::start().await;
    let pause = Duration::from_millis(20);
    world.helper.then(
        std::iter::repeat_with(|| Act::Slowly(pause, Outcome::Done(Done::default()))).take(60),
    );
    let mut running = tokio::task::JoinSet::new();
    for index in 0..60 {
        let mut node = world.node();
        running.spawn(async move {
            let mut request = publish();
            request.target_path = format!("{}{index}", request.target_path);
            node.node_publish_volume(request).await.unwrap();
        });
    }
    while let Some(result) = running.join_next().await {
        result.unwrap();
    }
    assert_eq!(world.helper.requests().len(), 60);
}

#[tokio::test]
async fn publish_succeeds_while_60_stages_hang() {
    const SLOW: usize = 60;
    let world = World::start().await;
    world.helper.then(std::iter::repeat_with(|| Act::Hang).take(SLOW));
    let mut slow = tokio::task::JoinSet::new();
    for index in 0..SLOW {
        let mut node = world.node();
        slow.spawn(async move {
            let mut request = stage();
            request.volume_id = format!("vol-{index:017x}");
            let _ = node.node_stage_volume(request).await;
        });
    }
    world.helper.wait_for_requests(SLOW).await;
    world.node().node_publish_volume(publish()).await.unwrap();
}

/// The disk that does not answer counts as 1 collector error; the agent asks the helper to wait at
/// most 500 ms for each disk.
#[tokio::test]
async fn unresponsive_disk_does_not_block_other_statistics() {
    use ebs_csi_node_agent::helper::Helper;
    use ebs_csi_node_agent::http_endpoint::{Collection, VolumeStatistics};
    use ebs_csi_node_agent::metrics::Metrics;
    use ebs_csi_wire::{HeldVolume, VolumeId};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("helper.sock");
    let scripted = ScriptedHelper::start(&path, Greeting::Usual);
    let held = |id: &str| HeldVolume {
        volume: VolumeId::parse(id).unwrap(),
        ..world::held(world::STAGING, true)
    };
    let (silent, well) = ("vol-0123456789abcdef0", "vol-0123456789abcdef1");
    let mut page = vec![0; 4096];
    page[..4].copy_from_slice(&0x3c23_b510_u32.to_le_bytes());
    scripted.then([
        Act::holds([held(silent), held(well)]),
        Act::Hang,
        Act::Answer(Outcome::LogPage(LogPage { page })),
    ]);
    let address = format!("unix://{}", path.display()).parse().unwrap();
    let helper = Arc::new(Helper::new(address, Arc::new(Metrics::default())));
    let statistics = Arc::new(VolumeStatistics::default());
    let mut metrics = Metrics::default();
    metrics.register_collector(Box::new(Arc::clone(&statistics)));
    let collection = Collection::new(helper, Arc::new(world::facts().into()), statistics);
    collection.refresh().await;
    let page = metrics.page();
    assert!(page.contains(&format!("volume_id=\"{well}\"}} 0")), "{page}");
    assert!(!page.contains(silent), "{page}");
    assert!(page.contains("nvme_collector_errors_total{instance_id=\"i-0123456789abcdef0\"} 1"));
    let waits = scripted.waits();
    assert!(waits[1..].iter().all(|wait| *wait <= Duration::from_millis(500)), "{waits:?}");
}

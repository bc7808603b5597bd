//! The whole life cycle of a volume through the real processes, and the resulting requests to EC2.

use std::collections::BTreeMap;
use std::time::Duration;

use ebs_csi_e2e::{Fixture, Lifecycle, LifecycleStep};
use ebs_csi_sandbox::co::{Claim, Content, GIB, Source, Volume};
use ebs_csi_sandbox::ec2::DescribedVolume;
use ebs_csi_sandbox::{pod_view, tool_at_work};
use tonic::Code::{Aborted, Cancelled, DeadlineExceeded, Unavailable};

/// Returns EC2's view of a volume.
async fn shown(fixture: &Fixture, volume: &Volume) -> DescribedVolume {
    fixture.ec2().volume(&volume.id).await.unwrap().unwrap()
}

async fn run_lifecycle(claim: Claim) {
    let Some(fixture) = Fixture::start().await else { return };
    let mark = fixture.ec2().last().await.unwrap();
    let mut volume = Lifecycle::new(&fixture, claim.clone());
    for &step in LifecycleStep::ALL {
        fixture.must(&format!("{step:?} of {}", claim.name), volume.step(step)).await;
        match step {
            LifecycleStep::AttachElsewhere => {
                let shown = shown(&fixture, volume.volume().unwrap()).await;
                assert_eq!(shown.instances, [fixture.instance(1)], "{shown:?}");
            }
            LifecycleStep::NodeExpand => {
                let volume = volume.volume().unwrap();
                let shown = shown(&fixture, volume).await;
                let found = (shown.gib * GIB, shown.iops, shown.throughput);
                assert_eq!(found, (volume.bytes, Some(3014), Some(153)), "{shown:?}");
            }
            _ => {}
        }
    }
    // One call for each object that was made, moved or removed: the volume, its restored copy and
    // its clone.
    let expected = BTreeMap::from([
        ("AttachVolume", 4),
        ("CopyVolumes", 1),
        ("CreateSnapshot", 1),
        ("CreateVolume", 2),
        ("DeleteSnapshot", 1),
        ("DeleteVolume", 3),
        ("DetachVolume", 4),
        ("ModifyVolume", 1),
    ]);
    let mut sent: BTreeMap<&str, usize> = BTreeMap::new();
    let records = fixture.ec2().mutations(mark).await.unwrap();
    for record in &records {
        *sent.entry(record["action"].as_str().unwrap()).or_default() += 1;
    }
    assert_eq!(sent, expected, "{records:#?}");
    let modify = records.iter().find(|record| record["action"] == "ModifyVolume").unwrap();
    for (key, value) in [("Size", "11"), ("Iops", "3014"), ("Throughput", "153")] {
        assert_eq!(modify["parameters"][key], value, "{modify:#}");
    }
    fixture.finish().await;
}

#[tokio::test]
async fn ext4_volume_lifecycle_leaves_nothing_behind() {
    run_lifecycle(Claim::filesystem("pvc-life-ext4", "ext4", 10).parameter("type", "gp3")).await;
}

#[tokio::test]
async fn xfs_volume_lifecycle_leaves_nothing_behind() {
    run_lifecycle(Claim::filesystem("pvc-life-xfs", "xfs", 10).parameter("type", "gp3")).await;
}

#[tokio::test]
async fn raw_block_volume_lifecycle_leaves_nothing_behind() {
    run_lifecycle(Claim::block("pvc-life-block", 10).parameter("type", "gp3")).await;
}

#[tokio::test]
async fn larger_restore_grows_file_system_and_keeps_data() {
    let Some(fixture) = Fixture::start().await else { return };
    for kind in ["ext4", "xfs"] {
        let name = format!("pvc-small-{kind}");
        let mut volume = Lifecycle::new(&fixture, Claim::filesystem(&name, kind, 1));
        fixture.take(&mut volume, LifecycleStep::up_to(LifecycleStep::Unstage)).await;
        let volume = volume.volume().unwrap().clone();
        let snapshot = format!("snap-{kind}");
        let snapshot = fixture.co.snapshot_ready(&snapshot, &volume.id);
        let snapshot = fixture.must("snapshot", snapshot).await;
        let mut claim = Claim::filesystem(&format!("pvc-large-{kind}"), kind, 3)
            .from_source(Source::Snapshot(snapshot.id.clone()));
        claim.content =
            Content::Filesystem { kind: kind.to_owned(), flags: vec!["noatime".to_owned()] };
        let (restored, attachment) = fixture.attached(&claim).await;
        let target = fixture.published(&restored, &attachment, "pod-1").await;
        pod_view::find(&target, &name).unwrap();
        let size = pod_view::size(&target).unwrap();
        assert!(size > 5 * GIB / 2, "{kind}: {size} bytes of a 3 GiB disk");
        fixture.discard(&restored, &["pod-1"]).await;
        fixture.remove(&volume).await;
        fixture.must("delete snapshot", fixture.co.delete_snapshot(&snapshot.id)).await;
    }
    fixture.finish().await;
}

#[tokio::test]
async fn read_only_publish_shares_volume_with_writing_pod() {
    let Some(fixture) = Fixture::start().await else { return };
    let (volume, attachment) = fixture.attached(&Claim::filesystem("pvc-shared", "ext4", 1)).await;
    let first = fixture.published(&volume, &attachment, "pod-1").await;
    pod_view::write(&first, "pvc-shared").unwrap();
    let kubelet = &fixture.kubelets[0];
    let second = kubelet.publish(&volume, &attachment, "pod-2", true);
    let second = fixture.must("publish to a second pod", second).await;
    pod_view::find(&second, "pvc-shared").unwrap();
    let refused = std::fs::write(second.join("new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    std::fs::write(first.join("new"), "x").unwrap();
    let usage = fixture.must("stats", kubelet.stats(&volume, &second)).await;
    assert!(usage.iter().any(|entry| entry.total > GIB / 2), "{usage:?}");
    fixture.discard(&volume, &["pod-1", "pod-2"]).await;
    fixture.finish().await;
}

/// A format continues after its client gave up, and a retry joins it. `controller/tests/csi` has
/// the same of the controller's calls.
#[tokio::test]
async fn abandoned_format_continues_and_retry_joins() {
    let Some(fixture) = Fixture::start().await else { return };
    for kind in ["ext4", "xfs"] {
        let claim = Claim::filesystem(&format!("pvc-slow-{kind}"), kind, 10);
        let (volume, attachment) = fixture.attached(&claim).await;
        let kubelet = &fixture.kubelets[0];
        let mut with_deadline = kubelet.clone();
        with_deadline.retry_policy =
            with_deadline.retry_policy.deadline(Duration::from_secs(3)).once();
        let (tool, refused) =
            tokio::join!(fixture.catch_tool(), with_deadline.stage(&volume, &attachment));
        let refused = refused.unwrap_err();
        // Kubelet reads each of these codes as "it may still be in progress".
        let code = refused.code();
        assert!(
            matches!(code, Some(DeadlineExceeded | Aborted | Unavailable | Cancelled)),
            "{refused}"
        );
        assert!(tool.alive(), "the tool ended with its client");
        // The retry waits for the running tool instead of starting a second one.
        let (joined, ()) = tokio::join!(kubelet.stage(&volume, &attachment), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let running = tool_at_work::running(&fixture.world.nodes[0]);
            assert_eq!(running, [tool.pid()], "the retry started a tool of its own");
            drop(tool);
        });
        fixture.must("retry", async { joined }).await;
        fixture.discard(&volume, &[]).await;
    }
    fixture.finish().await;
}

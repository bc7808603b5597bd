//! The whole life cycle of a volume through the real processes, and the resulting requests to EC2.

use std::collections::BTreeMap;

use ebs_csi_e2e::volume_lifecycle::GIB;
use ebs_csi_e2e::{Life, LifecycleStep, Setting};
use ebs_csi_sandbox::co::{Claim, Content, Source};

async fn live(claim: Claim) {
    let Some(setting) = Setting::start().await else { return };
    let mark = setting.requests().mark().await;
    let mut life = Life::of(&setting, claim.clone());
    for step in LifecycleStep::ALL {
        setting.must(&format!("{step:?} of {}", claim.name), life.step(step)).await;
        match step {
            LifecycleStep::AttachElsewhere => {
                let id = &life.volume().unwrap().id;
                let shown = setting.requests().volume(id).await.unwrap();
                assert_eq!(shown.instances, [setting.instance(1)], "{shown:?}");
            }
            LifecycleStep::NodeExpand => {
                let volume = life.volume().unwrap();
                let shown = setting.requests().volume(&volume.id).await.unwrap();
                assert_eq!(
                    (shown.gib * GIB, shown.iops, shown.throughput),
                    (volume.bytes, Some(3014), Some(153)),
                    "{shown:?}"
                );
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
    let records = setting.requests().mutations(mark).await;
    for record in &records {
        *sent.entry(record["action"].as_str().unwrap()).or_default() += 1;
    }
    assert_eq!(sent, expected, "{records:#?}");
    let modify = records.iter().find(|record| record["action"] == "ModifyVolume").unwrap();
    for (key, value) in [("Size", "11"), ("Iops", "3014"), ("Throughput", "153")] {
        assert_eq!(modify["parameters"][key], value, "{modify:#}");
    }
    setting.finish().await;
}

#[tokio::test]
async fn ext4_volume_lifecycle_leaves_nothing_behind() {
    live(Claim::filesystem("pvc-life-ext4", "ext4", 10).parameter("type", "gp3")).await;
}

#[tokio::test]
async fn xfs_volume_lifecycle_leaves_nothing_behind() {
    live(Claim::filesystem("pvc-life-xfs", "xfs", 10).parameter("type", "gp3")).await;
}

#[tokio::test]
async fn raw_block_volume_lifecycle_leaves_nothing_behind() {
    live(Claim::block("pvc-life-block", 10).parameter("type", "gp3")).await;
}

#[tokio::test]
async fn larger_restore_grows_file_system_and_keeps_data() {
    let Some(setting) = Setting::start().await else { return };
    for kind in ["ext4", "xfs"] {
        let name = format!("pvc-small-{kind}");
        let mut life = Life::of(&setting, Claim::filesystem(&name, kind, 1));
        for step in [
            LifecycleStep::Create,
            LifecycleStep::Attach,
            LifecycleStep::Stage,
            LifecycleStep::Publish,
            LifecycleStep::Unpublish,
            LifecycleStep::Unstage,
        ] {
            setting.must(&format!("{step:?} {kind}"), life.step(step)).await;
        }
        let volume = life.volume().unwrap().clone();
        let snapshot = setting
            .must("snapshot", setting.co.snapshot_ready(&format!("snap-{kind}"), &volume.id))
            .await;
        let mut claim = Claim::filesystem(&format!("pvc-large-{kind}"), kind, 3)
            .from_source(Source::Snapshot(snapshot.id.clone()));
        claim.content =
            Content::Filesystem { kind: kind.to_owned(), flags: vec!["noatime".to_owned()] };
        let restored = setting.must("restore", setting.co.create(&claim)).await;
        let (kubelet, instance) = (&setting.kubelets[0], setting.instance(0));
        let attachment = setting.must("attach", setting.co.attach(&restored, &instance)).await;
        setting.must("stage", kubelet.stage(&restored, &attachment)).await;
        let target =
            setting.must("publish", kubelet.publish(&restored, &attachment, "pod-1", false)).await;
        ebs_csi_e2e::bytes::prove(&target.path, false, &name);
        let found = rustix::fs::statvfs(&target.path).unwrap();
        let size = i64::try_from(found.f_blocks * found.f_frsize).unwrap();
        assert!(size > 5 * GIB / 2, "{kind}: {size} bytes of a 3 GiB disk");
        setting.must("unpublish", kubelet.unpublish(&restored, "pod-1")).await;
        setting.must("unstage", kubelet.unstage(&restored)).await;
        for id in [&restored.id, &volume.id] {
            setting.must("detach", setting.co.detach(id, &instance)).await;
            setting.must("delete", setting.co.delete(id)).await;
        }
        setting.must("delete snapshot", setting.co.delete_snapshot(&snapshot.id)).await;
    }
    setting.finish().await;
}

/// Writes of the second pod fail with EROFS while the first pod still writes.
#[tokio::test]
async fn read_only_publish_shares_volume_with_writing_pod() {
    let Some(setting) = Setting::start().await else { return };
    let mut life = Life::of(&setting, Claim::filesystem("pvc-shared", "ext4", 1));
    for step in
        [LifecycleStep::Create, LifecycleStep::Attach, LifecycleStep::Stage, LifecycleStep::Publish]
    {
        setting.must(&format!("{step:?}"), life.step(step)).await;
    }
    let volume = life.volume().unwrap().clone();
    let (kubelet, instance) = (&setting.kubelets[0], setting.instance(0));
    let attachment = setting.must("attach again", setting.co.attach(&volume, &instance)).await;
    let second = setting
        .must("publish to a second pod", kubelet.publish(&volume, &attachment, "pod-2", true))
        .await;
    ebs_csi_e2e::bytes::prove(&second.path, false, "pvc-shared");
    let refused = std::fs::write(second.path.join("new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    std::fs::write(life.published().unwrap().path.join("new"), "x").unwrap();
    let usage = setting.must("stats", kubelet.stats(&volume, &second)).await;
    assert!(usage.iter().any(|entry| entry.total > GIB / 2), "{usage:?}");
    for pod in ["pod-1", "pod-2"] {
        setting.must("unpublish", kubelet.unpublish(&volume, pod)).await;
    }
    setting.discard(&volume).await;
    setting.finish().await;
}

//! Snapshots of several volumes at one moment: one set for each name, and nothing left.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ebs_csi_ec2::Call;
use ebs_csi_proto::csi;
use ebs_csi_wire::SnapshotId;
use serde_json::json;
use tonic::{Code, Status};

use super::waiting_process;
use crate::driver::{Driver, NODE_1, NODE_2, assert_refused, assert_status, map, within};

impl Driver {
    /// Starts a driver in this world, with volumes that are published to the first node.
    async fn with_attached(volumes: usize, scenario: serde_json::Value) -> (Self, Vec<String>) {
        let driver = Self::in_world(scenario).await;
        let published = driver.publish_at_once(volumes, NODE_1).await;
        (driver, published.into_iter().map(|(id, _)| id).collect())
    }

    async fn group(
        &self,
        name: &str,
        volumes: &[String],
    ) -> Result<csi::VolumeGroupSnapshot, Status> {
        self.group_of_class(name, volumes, &[]).await
    }

    async fn group_of_class(
        &self,
        name: &str,
        volumes: &[String],
        class: &[(&str, &str)],
    ) -> Result<csi::VolumeGroupSnapshot, Status> {
        let request = csi::CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: volumes.to_vec(),
            parameters: map(class),
            ..Default::default()
        };
        let mut groups = self.groups.clone();
        let answer = groups.create_volume_group_snapshot(within(request, 60)).await?;
        Ok(answer.into_inner().group_snapshot.expect("a group"))
    }

    async fn ready_group(&self, name: &str, volumes: &[String]) -> csi::VolumeGroupSnapshot {
        let began = Instant::now();
        loop {
            let group = self.group(name, volumes).await.unwrap();
            if group.ready_to_use {
                return group;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "the group does not become ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn shown_group(
        &self,
        id: &str,
        listed: &[String],
    ) -> Result<csi::VolumeGroupSnapshot, Status> {
        let request = csi::GetVolumeGroupSnapshotRequest {
            group_snapshot_id: id.to_owned(),
            snapshot_ids: listed.to_vec(),
            ..Default::default()
        };
        let answer = self.groups.clone().get_volume_group_snapshot(within(request, 60)).await?;
        Ok(answer.into_inner().group_snapshot.expect("a group"))
    }

    async fn delete_group(&self, id: &str, listed: &[String]) -> Result<(), Status> {
        let request = csi::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: id.to_owned(),
            snapshot_ids: listed.to_vec(),
            ..Default::default()
        };
        self.groups.clone().delete_volume_group_snapshot(within(request, 60)).await.map(drop)
    }

    /// Returns the number of requests that take snapshots, and that of live snapshots.
    fn cuts(&self) -> (u64, u64) {
        let calls = self.world.calls("CreateSnapshots") + self.world.calls("CreateSnapshot");
        (calls, self.live("snapshots"))
    }
}

fn members(group: &csi::VolumeGroupSnapshot) -> Vec<String> {
    group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect()
}

fn sources(group: &csi::VolumeGroupSnapshot) -> BTreeSet<&str> {
    group.snapshots.iter().map(|snapshot| &*snapshot.source_volume_id).collect()
}

fn as_set(ids: &[String]) -> BTreeSet<&str> {
    ids.iter().map(|id| &**id).collect()
}

/// Of the node's volumes only those that were asked for have snapshots, in one request. The group
/// is named in answers about the group alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_holds_its_volumes_of_one_moment() {
    let (driver, volumes) = Driver::with_attached(4, json!({})).await;
    let group = driver.ready_group("g", &volumes[..3]).await;
    assert_eq!(sources(&group), as_set(&volumes[..3]));
    assert_eq!(driver.cuts(), (1, 3));
    let created = group.creation_time.expect("a time");
    for member in &group.snapshots {
        assert_eq!(member.creation_time, Some(created));
        assert_eq!(member.group_snapshot_id, group.group_snapshot_id);
        let request = csi::GetSnapshotRequest {
            snapshot_id: member.snapshot_id.clone(),
            ..Default::default()
        };
        let alone = driver.call(request).await.unwrap().snapshot.unwrap();
        assert_eq!((&*alone.group_snapshot_id, alone.ready_to_use), ("", true));
    }
    let id = &group.group_snapshot_id;
    assert_eq!(driver.shown_group(id, &members(&group)).await.unwrap(), group);
    assert_eq!(driver.shown_group(id, &[]).await.unwrap(), group);
    // Another process answers alike, and the name belongs to these volumes.
    let second = driver.another().await;
    assert_eq!(second.group("g", &volumes[..3]).await.unwrap(), group);
    for process in [&driver, &second] {
        assert_refused(process.group("g", &volumes[..2]).await, Code::AlreadyExists, &[]);
        let fast = [("fastSnapshotRestoreAvailabilityZones", "us-east-1a")];
        let refused = process.group_of_class("g", &volumes[..3], &fast).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    }
    second.delete_group(id, &members(&group)).await.unwrap();
    assert_eq!(driver.cuts(), (1, 0));
    second.delete_group(id, &members(&group)).await.unwrap();
    driver.delete_group("nonsense", &[]).await.unwrap();
    assert_eq!(driver.shown_group(id, &[]).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_create_snapshots_replies_make_1_set() {
    for fault in [
        json!({ "kind": "lose_reply", "how": "close", "effect": true }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "effect": true }),
        json!({ "kind": "garble", "how": "unparsable", "effect": true }),
    ] {
        let (driver, volumes) = Driver::with_attached(2, json!({})).await;
        driver.world.fault_once("CreateSnapshots", &fault);
        let taken = members(&driver.group("g", &volumes).await.unwrap());
        assert_eq!(members(&driver.another().await.group("g", &volumes).await.unwrap()), taken);
        assert_eq!(driver.cuts(), (1, 2), "{fault}");
    }
}

/// The tags appear one after the other. A part of a set is never completed by a second request, and
/// a deletion finds what look-ups do not show.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partly_visible_set_is_waited_for() {
    let lagging = json!({ "consistency": {
        "replicas": 1, "lag": { "fixed_ms": 50 }, "mapping_lag": { "fixed_ms": 0 },
        "tag_lag": { "fixed_ms": 300 } },
        "quotas": { "snapshot_interval_ms": 15_000 } });
    let (driver, volumes) = Driver::with_attached(3, lagging).await;
    let step = json!({ "kind": "tags_one_by_one", "ms": 700 });
    driver.world.fault_once("CreateSnapshots", &step);
    let taken = driver.group("g", &volumes).await.unwrap();
    let successor = waiting_process(&driver, 3).await;
    let impatient = driver.another().await;
    while let Err(waits) = impatient.group("g", &volumes).await {
        // Until a look shows something, a process that nobody told of the other asks EC2, and EC2
        // takes one snapshot of a volume in 15 s.
        assert!(matches!(waits.code(), Code::Aborted | Code::Unavailable), "{waits}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for process in [&successor, &impatient] {
        assert_eq!(members(&process.group("g", &volumes).await.unwrap()), members(&taken));
    }
    assert_eq!(driver.live("snapshots"), 3);
    let (id, listed) = (&taken.group_snapshot_id, members(&taken));
    driver.another().await.delete_group(id, &listed).await.unwrap();
    assert_eq!(driver.live("snapshots"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_apart_are_refused_until_together() {
    let (driver, mut volumes) = Driver::with_attached(2, json!({})).await;
    volumes.push(driver.created("pvc-apart", 1).await);
    let apart = driver.group("g", &volumes).await.unwrap_err();
    assert_status(&apart, Code::FailedPrecondition, &[&volumes[0], NODE_1, &volumes[2], "none"]);
    driver.publish(&volumes[2], NODE_2).await.unwrap();
    let apart = driver.group("g", &volumes).await.unwrap_err();
    assert_status(&apart, Code::FailedPrecondition, &[NODE_1, &volumes[2], NODE_2]);
    assert_eq!(driver.cuts(), (0, 0));
    driver.unpublish(&volumes[2], NODE_2).await.unwrap();
    driver.publish(&volumes[2], NODE_1).await.unwrap();
    assert_eq!(sources(&driver.group("g", &volumes).await.unwrap()), as_set(&volumes));
    assert_eq!(driver.cuts(), (1, 3));
    let gone = [volumes[0].clone(), "vol-0ffffffffffffffff".to_owned()];
    assert_refused(driver.group("h", &gone).await, Code::NotFound, &[&gone[1]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_of_1_volume_needs_no_attachment() {
    let (driver, id) = Driver::with_volume(1).await;
    let group = driver.ready_group("g", &[id.clone(), id.clone()]).await;
    assert_eq!(sources(&group), BTreeSet::from([&*id]));
    assert_eq!(driver.world.calls("CreateSnapshots"), 0);
    driver.delete_group(&group.group_snapshot_id, &members(&group)).await.unwrap();
    assert_eq!(driver.live("snapshots"), 0);
}

/// The volume is attached between the look at the instance and the request. The second time, the
/// answer is lost: another process finds the set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volume_attached_meanwhile_keeps_no_snapshot() {
    for lost in [false, true] {
        let (driver, volumes) = Driver::with_attached(2, json!({})).await;
        let foreign = driver.created("pvc-foreign", 1).await;
        let attach = json!({ "kind": "foreign", "action": "AttachVolume", "parameters": {
            "VolumeId": foreign, "InstanceId": NODE_1, "Device": "/dev/xvdcz" } });
        driver.world.fault_once("CreateSnapshots", &attach);
        if lost {
            let lost = json!({ "kind": "lose_reply", "how": "close", "effect": true });
            driver.world.fault_once("CreateSnapshots", &lost);
        }
        let group = driver.group("g", &volumes).await.unwrap();
        assert_eq!(sources(&group), as_set(&volumes));
        assert_eq!(driver.cuts(), (1, 2), "lost: {lost}");
    }
}

/// Before the first answer, another set is taken; after it, the ids must stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_member_is_replaced_before_first_answer() {
    let rates = json!({ "limits": { "enabled": false } });
    let (driver, volumes) = Driver::with_attached(2, rates).await;
    let at_once = json!({ "kind": "fail_snapshot", "after_ms": 0, "member": 1 });
    let lost = json!({ "kind": "lose_reply", "how": "close", "effect": true });
    driver.world.fault_once("CreateSnapshots", &at_once);
    driver.world.fault_once("CreateSnapshots", &lost);
    let failed = driver.group("g", &volumes).await.unwrap_err();
    assert_status(&failed, Code::Aborted, &["could not make", "ask again"]);
    assert_eq!(driver.live("snapshots"), 0);
    driver.world.clear_faults();

    let later = json!({ "kind": "fail_snapshot", "after_ms": 300, "member": 0 });
    driver.world.fault_once("CreateSnapshots", &later);
    let taken = driver.group("g", &volumes).await.unwrap();
    assert!(!taken.ready_to_use);
    let failed = loop {
        match driver.group("g", &volumes).await {
            Ok(pending) => assert_eq!(members(&pending), members(&taken)),
            Err(failed) => break failed,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_status(&failed, Code::Internal, &["could not make", "take another"]);
    // A process that knows nothing returns the ids once: a caller must be able to delete them.
    let second = driver.another().await;
    assert_eq!(members(&second.group("g", &volumes).await.unwrap()), members(&taken));
    assert_eq!(second.group("g", &volumes).await.unwrap_err().code(), Code::Internal);
    let (id, listed) = (&taken.group_snapshot_id, members(&taken));
    assert_eq!(second.shown_group(id, &listed).await.unwrap_err().code(), Code::Internal);
    second.delete_group(id, &listed).await.unwrap();
    assert_eq!(driver.live("snapshots"), 0);
}

/// Backup tools keep a group's snapshots without the group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_deleted_alone_or_by_full_list() {
    let (driver, volumes) = Driver::with_attached(3, json!({})).await;
    let group = driver.ready_group("g", &volumes).await;
    let (id, listed) = (&group.group_snapshot_id, members(&group));
    let foreign = driver.snapshot("s", &driver.created("pvc-9", 1).await).await.unwrap();
    let with_foreign = [listed.clone(), vec![foreign.snapshot_id]].concat();
    for wrong in [&listed[..1], &with_foreign[..]] {
        for refused in [
            driver.delete_group(id, wrong).await.unwrap_err(),
            driver.shown_group(id, wrong).await.unwrap_err(),
        ] {
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        }
    }
    assert_eq!(driver.live("snapshots"), 4);
    driver.delete_snapshot(&listed[1]).await.unwrap();
    assert_eq!(driver.live("snapshots"), 3);
    driver.delete_group(id, &listed).await.unwrap();
    assert_eq!(driver.live("snapshots"), 1);
}

/// csi-snapshotter 8.6 asks several times a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_groups_share_1_look_in_5_s() {
    let slow = json!({ "latency": { "snapshot": { "fixed_ms": 600_000 } }, "limits": { "enabled": false }, "quotas": { "concurrent_snapshots": 10 } });
    let (driver, volumes) = Driver::with_attached(2, slow).await;
    let names: Vec<_> = (0..10).map(|number| format!("g{number}")).collect();
    for name in &names {
        driver.group(name, &volumes).await.unwrap();
    }
    let (before, began) = (driver.world.calls("DescribeSnapshots"), Instant::now());
    for _ in 0..30 {
        for name in &names {
            assert!(!driver.group(name, &volumes).await.unwrap().ready_to_use);
        }
    }
    let looks = driver.world.calls("DescribeSnapshots") - before;
    assert!(looks <= 1 + began.elapsed().as_secs() / 5, "{looks} in {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn class_of_group_holds_for_each_member() {
    let (driver, volumes) = Driver::with_attached(2, json!({})).await;
    let outpost =
        [("outpostArn", "arn:aws:outposts:us-east-1:111122223333:outpost/op-0aaaaaaaaaaaaaaa1")];
    let refused = driver.group_of_class("g", &volumes, &outpost).await.unwrap_err();
    assert_status(&refused, Code::InvalidArgument, &["outpostArn"]);
    let class = [
        ("lockMode", "governance"),
        ("lockDuration", "1"),
        ("tagSpecification_1", "backup={{ .VolumeSnapshotNamespace }}/{{ .VolumeSnapshotName }}"),
        ("csi.storage.k8s.io/volumegroupsnapshot/name", "nightly"),
        ("csi.storage.k8s.io/volumegroupsnapshot/namespace", "shop"),
        ("csi.storage.k8s.io/volumegroupsnapshotcontent/name", "groupsnapcontent-1"),
    ];
    let group = driver.group_of_class("g", &volumes, &class).await.unwrap();
    let ec2 = &driver.world.ec2;
    for member in members(&group) {
        let id = SnapshotId::parse(&member).unwrap();
        assert!(ec2.snapshot_lock(&Call::default(), &id).await.unwrap().is_some());
        let shown = ec2.look_snapshot(&Call::default(), &id).await.known().unwrap().unwrap();
        assert_eq!(shown.tags["backup"], "shop/nightly");
        assert_eq!(shown.tags["CSIVolumeSnapshotName"], group.group_snapshot_id);
    }
    let locked = driver.delete_group(&group.group_snapshot_id, &members(&group)).await.unwrap_err();
    assert_eq!(locked.code(), Code::FailedPrecondition, "{locked}");
    // A lock that EC2 refuses leaves nothing.
    let (driver, volumes) = Driver::with_attached(2, json!({})).await;
    driver.world.deny("LockSnapshot");
    let refused = driver.group_of_class("g", &volumes, &class).await.unwrap_err();
    assert_status(&refused, Code::PermissionDenied, &["ec2:LockSnapshot"]);
    assert_eq!(driver.live("snapshots"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ec2_errors_of_group_map_to_csi_codes() {
    let (driver, volumes) = Driver::with_attached(2, json!({})).await;
    for (code, want) in [
        ("SnapshotLimitExceeded", Code::ResourceExhausted),
        ("SnapshotCreationPerVolumeRateExceeded", Code::Unavailable),
        ("InvalidVolume.NotFound", Code::NotFound),
        ("UnauthorizedOperation", Code::PermissionDenied),
        ("NeverHeardOf", Code::Internal),
    ] {
        driver.world.clear_faults();
        driver.world.refuse("CreateSnapshots", code, 400);
        assert_refused(driver.group("g", &volumes).await, want, &["CreateSnapshots"]);
    }
    driver.world.clear_faults();
    for (name, wrong) in [("", &volumes[..]), ("g", &[]), ("g", &[String::new()])] {
        assert_refused(driver.group(name, wrong).await, Code::InvalidArgument, &[]);
    }
    assert_eq!(driver.live("snapshots"), 0);
    driver.group("g", &volumes).await.unwrap();
}

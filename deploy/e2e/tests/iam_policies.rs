//! The IAM policies in `policy/iam`: each action is needed, the table names what breaks without it,
//! and the driver makes no call that the policies do not list.
//!
//! The controller's own process runs every feature against the simulator, which decides about each
//! call by these policies.

mod iam_world;

use std::collections::BTreeSet;

use ebs_csi_e2e::repository;
use ebs_csi_proto::safe_detach::fence_request::Mode as Fence;
use iam_world::{Feature, IamWorld, fence_of, read_policies};
use serde_json::Value;
use tonic::Code;

/// The symptom of a missing action.
#[derive(Clone, Copy, Debug)]
enum Shows {
    /// The call fails with PERMISSION_DENIED and names the action; a create with ABORTED at first.
    Refusal,
    /// The call fails with a code that leaves the outcome open, and names the action.
    Pending,
    /// The call fails with these words: EC2 gives the driver no more information.
    Words(&'static str),
    /// The call succeeds and the log names the action.
    Warning,
}

/// Policy and statement, one of its actions, the feature that breaks without it, and the symptom.
type Needed = (&'static str, &'static str, Feature, Shows);

/// One row for each action of each statement.
const NEEDED: &[Needed] = {
    use Feature::*;
    use Shows::{Pending, Refusal, Warning, Words};
    const NO_KEY: Shows = Words("encryption key");
    const FAST: &str = "fast-restore-and-lock/SpeedUpAndLockOwnSnapshots";
    const READ_FAST: &str = "fast-restore-and-lock/ReadWhatSnapshotsHave";
    &[
        ("base/ReadVolumesAndInstances", "ec2:DescribeAvailabilityZones", Create, Refusal),
        ("base/ReadVolumesAndInstances", "ec2:DescribeInstances", Publish, Refusal),
        ("base/ReadVolumesAndInstances", "ec2:DescribeInstanceTypes", PublishToNewType, Warning),
        ("base/ReadVolumesAndInstances", "ec2:DescribeVolumes", Create, Pending),
        ("base/CreateVolumes", "ec2:CreateVolume", Create, Refusal),
        ("base/TagNewVolumes", "ec2:CreateTags", Create, Refusal),
        ("base/UseOwnVolumes", "ec2:AttachVolume", Publish, Refusal),
        ("base/UseOwnVolumes", "ec2:DetachVolume", Unpublish, Refusal),
        ("base/UseOwnVolumes", "ec2:DeleteVolume", Delete, Refusal),
        ("base/UseMigratedVolumes", "ec2:AttachVolume", PublishMigrated, Refusal),
        ("base/UseMigratedVolumes", "ec2:DetachVolume", UnpublishMigrated, Refusal),
        ("base/UseMigratedVolumes", "ec2:DeleteVolume", DeleteMigrated, Refusal),
        ("base/UseInstances", "ec2:AttachVolume", Publish, Refusal),
        ("base/UseInstances", "ec2:DetachVolume", Unpublish, Refusal),
        ("modify/ReadModifications", "ec2:DescribeVolumesModifications", Expand, Refusal),
        ("modify/ModifyOwnVolumes", "ec2:ModifyVolume", Expand, Refusal),
        ("modify/ModifyMigratedVolumes", "ec2:ModifyVolume", ExpandMigrated, Refusal),
        ("modify/ChangeTagsOfOwnVolumes", "ec2:CreateTags", SetTag, Refusal),
        ("modify/ChangeTagsOfOwnVolumes", "ec2:DeleteTags", RemoveTag, Refusal),
        ("snapshots/ReadSnapshots", "ec2:DescribeSnapshots", Snapshot, Pending),
        ("snapshots/ReadSnapshots", "ec2:DescribeVolumeStatus", PublishWhenFilled, Refusal),
        ("snapshots/SnapshotOwnVolumes", "ec2:CreateSnapshot", Snapshot, Refusal),
        ("snapshots/SnapshotMigratedVolumes", "ec2:CreateSnapshot", SnapshotMigrated, Refusal),
        ("snapshots/CreateSnapshots", "ec2:CreateSnapshot", Snapshot, Refusal),
        ("snapshots/TagNewSnapshots", "ec2:CreateTags", Snapshot, Refusal),
        ("snapshots/RestoreAndDeleteOwnSnapshots", "ec2:CreateVolume", Restore, Refusal),
        ("snapshots/RestoreAndDeleteOwnSnapshots", "ec2:DeleteSnapshot", DeleteSnapshot, Refusal),
        ("clone/CopyOwnVolumes", "ec2:CopyVolumes", Clone, Refusal),
        ("clone/CopyMigratedVolumes", "ec2:CopyVolumes", CloneMigrated, Refusal),
        ("clone/CreateCopies", "ec2:CopyVolumes", Clone, Refusal),
        ("clone/TagCopies", "ec2:CreateTags", Clone, Refusal),
        (READ_FAST, "ec2:DescribeFastSnapshotRestores", FastRestoreTakenOver, Warning),
        (READ_FAST, "ec2:DescribeLockedSnapshots", LockTakenOver, Warning),
        (FAST, "ec2:EnableFastSnapshotRestores", FastRestore, Refusal),
        (FAST, "ec2:LockSnapshot", Lock, Refusal),
        ("fence/FenceTaggedInstances", "ec2:StopInstances", FenceByStop, Refusal),
        ("fence/FenceTaggedInstances", "ec2:TerminateInstances", FenceByTermination, Refusal),
        ("fence/ReadStatusChecks", "ec2:DescribeInstanceStatus", FenceOfTheImpaired, Refusal),
        ("kms/EncryptThroughEc2", "kms:Decrypt", RestoreEncrypted, NO_KEY),
        ("kms/EncryptThroughEc2", "kms:GenerateDataKeyWithoutPlaintext", Encrypt, NO_KEY),
        ("kms/LetEc2UseTheKey", "kms:CreateGrant", Encrypt, NO_KEY),
    ]
};

/// The policies that are split by feature.
const BY_FEATURE: [&str; 7] =
    ["base", "modify", "snapshots", "clone", "fast-restore-and-lock", "fence", "kms"];

fn rows(report: &Value, what: &str) -> Vec<Value> {
    report[what].as_array().cloned().unwrap_or_default()
}

fn all_used(report: &Value) {
    for row in rows(report, "statements") {
        assert!(row["times"] != 0, "nothing uses {row}");
    }
}

async fn must_run(world: &IamWorld, feature: Feature) {
    if let Err(status) = world.run(feature).await {
        panic!("{feature:?}: {status:?}\n{}", world.log());
    }
}

/// The policies also refuse to fence an untagged instance, and controller/README.md lists exactly
/// the EC2 calls made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_features_work_and_use_every_policy_action() {
    let Some(world) = IamWorld::start(read_policies(&BY_FEATURE)).await else { return };
    for &feature in Feature::ALL {
        must_run(&world, feature).await;
    }
    let report = world.report();
    let calls = rows(&report, "asked");
    for row in &calls {
        assert_eq!(row["denied"], 0, "a call that no policy lists: {row}");
    }
    all_used(&report);
    let refused = world.fence(fence_of(iam_world::NODE, Fence::Stop)).await;
    let refused = refused.expect_err("an instance without the tag");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    let made: BTreeSet<&str> = calls
        .iter()
        .filter_map(|row| row["action"].as_str())
        .filter(|action| action.starts_with("ec2:"))
        .collect();
    let documented = documented();
    let documented: BTreeSet<&str> = documented.iter().map(String::as_str).collect();
    assert_eq!(made, documented, "controller/README.md lists the calls that are made");
}

/// Returns the EC2 actions in the table of `controller/README.md`.
fn documented() -> BTreeSet<String> {
    let text = repository::read("controller/README.md");
    let table = text
        .split("## Calls and permissions")
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next())
        .expect("the table of calls");
    table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split('|').next())
        .flat_map(|cell| cell.split(", "))
        .map(|action| action.trim().to_owned())
        .filter(|action| action.starts_with("ec2:"))
        .collect()
}

/// The error or the log names the action; a missing KMS action shows only as "encryption key".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_policy_action_shows_in_error_or_log() {
    let policies = read_policies(&BY_FEATURE);
    let elements: BTreeSet<(String, String, String)> = policies.elements().collect();
    let listed = NEEDED.iter().map(|(name, action, ..)| {
        let (policy, statement) = name.split_once('/').expect("policy/statement");
        (policy.to_owned(), statement.to_owned(), (*action).to_owned())
    });
    let listed: BTreeSet<(String, String, String)> = listed.collect();
    assert_eq!(elements, listed, "each action of each statement has a row");
    let mut lanes = Vec::new();
    for lane in 0..LANES {
        let Some(world) = IamWorld::start(policies.clone()).await else { return };
        lanes.push(tokio::spawn(async move {
            let mut wrong = Vec::new();
            for row in NEEDED.iter().skip(lane).step_by(LANES) {
                wrong.extend(breaks(&world, row).await);
            }
            wrong
        }));
    }
    let mut wrong = Vec::new();
    for lane in lanes {
        wrong.extend(lane.await.expect("a lane"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Number of worlds in which the rows are tried in parallel, since most of the time is spent
/// waiting.
const LANES: usize = 4;

/// Runs a feature without one action. Returns a description when the result differs from the row.
async fn breaks(world: &IamWorld, row: &Needed) -> Option<String> {
    let (name, action, feature, shows) = row;
    let (policy, statement) = name.split_once('/').expect("policy/statement");
    world.plan_without(policy, statement, action);
    let result = world.run(*feature).await;
    world.restore();
    let clear = match (shows, &result) {
        (Shows::Refusal, Err(s)) => {
            let is_final = s.code() == Code::PermissionDenied;
            let is_final_later = s.message().contains("final when it has been the answer");
            (is_final || is_final_later) && s.message().contains(action)
        }
        (Shows::Pending, Err(s)) => s.code() == Code::Aborted && s.message().contains(action),
        (Shows::Words(words), Err(s)) => s.message().contains(words),
        (Shows::Warning, Ok(())) => world.log().contains(action),
        _ => false,
    };
    (!clear).then(|| format!("{feature:?} without {action} of {name}: {result:?}"))
}

/// Ending an `iopsPerGB` ratio deletes its tag; without ec2:DeleteTags the change succeeds and the
/// log names the permission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modify_without_delete_tags_permission_succeeds_and_warns() {
    let Some(world) = IamWorld::start(read_policies(&BY_FEATURE)).await else { return };
    world.plan_without("modify", "ChangeTagsOfOwnVolumes", "ec2:DeleteTags");
    world.run(Feature::EndRatio).await.expect("the rate");
    assert!(world.log().contains("ec2:DeleteTags"), "{}", world.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_scoped_policy_serves_only_its_own_cluster() {
    let Some(world) = IamWorld::start(read_policies(&["cluster-scoped"])).await else { return };
    for feature in Feature::ALL.iter().copied().filter(|f| !f.beyond_cluster_scope()) {
        must_run(&world, feature).await;
    }
    let name = "ebs.csi.aws.com/cluster-name";
    let own = world.foreign_volume(&[(name, "test")]);
    let node = ("InstanceId", iam_world::OTHER_TYPE);
    assert!(world.may("DetachVolume", &[("VolumeId", &own), node]));
    all_used(&world.report());
    let other = world.foreign_volume(&[
        ("ebs.csi.aws.com/cluster", "true"),
        ("ebs.csi.aws.com/cluster-name", "another"),
    ]);
    let refused = world.delete(&other).await.expect_err("another cluster's volume");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    let refused =
        world.publish(&other, iam_world::NODE).await.expect_err("another cluster's volume");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
}

/// The owner of the volume that a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Driver,
    AnotherCluster,
    Nobody,
}

/// Action, owner of the volume, further parameters, whether the policies by feature allow the call,
/// and whether the cluster-scoped policy does.
type Call = (&'static str, Of, Parameters, bool, bool);
type Parameters = &'static [(&'static str, &'static str)];

const TEAM: Parameters = &[("Tag.1.Key", "team")];
const RED: Parameters = &[("Tag.1.Key", "team"), ("Tag.1.Value", "red")];
const NAME: Parameters = &[("Tag.1.Key", "CSIVolumeName")];
const TEAM_AND_CLUSTER: Parameters =
    &[("Tag.1.Key", "team"), ("Tag.2.Key", "ebs.csi.aws.com/cluster")];
const CLUSTER: Parameters = &[("Tag.1.Key", "ebs.csi.aws.com/cluster"), ("Tag.1.Value", "true")];
const CLUSTER_NAME: Parameters =
    &[("Tag.1.Key", "ebs.csi.aws.com/cluster-name"), ("Tag.1.Value", "x")];
const TO_NODE: Parameters = &[("InstanceId", iam_world::NODE), ("Device", "/dev/xvdba")];
const TO_FENCEABLE: Parameters = &[("InstanceId", iam_world::FENCEABLE), ("Device", "/dev/xvdba")];

/// Calls that somebody with a stolen role could make, and calls of the driver itself, so that the
/// policies do not simply refuse everything.
const CALLS: &[Call] = &[
    ("DeleteTags", Of::Driver, TEAM, true, true),
    ("DeleteTags", Of::Driver, &[], false, false),
    ("DeleteTags", Of::Nobody, TEAM, false, false),
    ("DeleteTags", Of::Driver, NAME, false, false),
    ("DeleteTags", Of::Driver, TEAM_AND_CLUSTER, false, false),
    ("CreateTags", Of::Driver, RED, true, true),
    ("CreateTags", Of::Driver, CLUSTER_NAME, false, false),
    ("CreateTags", Of::Nobody, CLUSTER, false, false),
    ("AttachVolume", Of::Driver, TO_NODE, true, true),
    // An instance that belongs to no cluster: only the cluster-scoped policy distinguishes it.
    ("AttachVolume", Of::Driver, TO_FENCEABLE, true, false),
    ("AttachVolume", Of::AnotherCluster, TO_NODE, true, false),
    ("AttachVolume", Of::Nobody, TO_NODE, false, false),
    ("DeleteVolume", Of::Driver, &[], true, true),
    ("DeleteVolume", Of::Nobody, &[], false, false),
    ("DeleteVolume", Of::AnotherCluster, &[], true, false),
    ("ModifyVolume", Of::Driver, &[("Size", "9")], true, true),
    ("ModifyVolume", Of::Nobody, &[("Size", "9")], false, false),
    ("CreateSnapshot", Of::Nobody, &[], false, false),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_allow_driver_requests_and_refuse_others() {
    for (files, is_scoped) in [(&BY_FEATURE[..], false), (&["cluster-scoped"][..], true)] {
        let Some(world) = IamWorld::start(read_policies(files)).await else { return };
        let own = ("ebs.csi.aws.com/cluster", "true");
        let name = "ebs.csi.aws.com/cluster-name";
        let of_driver = world.foreign_volume(&[own, (name, "test")]);
        let of_another = world.foreign_volume(&[own, (name, "another")]);
        let of_nobody = world.foreign_volume(&[]);
        for (action, of, more, by_feature, scoped) in CALLS {
            let id = match of {
                Of::Driver => &of_driver,
                Of::AnotherCluster => &of_another,
                Of::Nobody => &of_nobody,
            };
            let key = match *action {
                "CreateTags" | "DeleteTags" => "ResourceId.1",
                _ => "VolumeId",
            };
            let mut parameters = vec![(key, id.as_str())];
            parameters.extend(more.iter());
            let want = if is_scoped { *scoped } else { *by_feature };
            assert_eq!(world.may(action, &parameters), want, "{action} of {of:?}, {more:?}");
        }
    }
}

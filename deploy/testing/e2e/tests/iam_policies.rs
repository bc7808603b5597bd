//! The IAM policies in `policy/iam`: each action is needed, the table names what breaks without it,
//! and the driver makes no call that the policies do not list.
//!
//! The controller's own process runs every feature against the simulator, which decides about each
//! call by these policies, or by AWS's managed policies. What they refuse to somebody else is in
//! `deploy/testing/ec2-sim/tests/role_policies`.

mod iam_world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebs_csi_e2e::repository;
use ebs_csi_proto::safe_detach::fence_request::Mode as Fence;
use ebs_csi_sandbox::CoError;
use iam_world::{Feature, IamWorld, Policies, fence_of, managed_policies, read_policies};
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

/// What shows that an action is missing, where it is something else than a refusal of the first
/// feature that uses the action.
const SHOWN_OTHERWISE: &[(&str, Feature, Shows)] = {
    use Feature::*;
    use Shows::{Pending, Warning, Words};
    const NO_KEY: Shows = Words("encryption key");
    &[
        ("ec2:DescribeInstanceTypes", PublishToNewType, Warning),
        ("ec2:DescribeVolumes", Create, Pending),
        ("ec2:DescribeSnapshots", Snapshot, Pending),
        ("ec2:DescribeFastSnapshotRestores", FastRestoreTakenOver, Warning),
        ("ec2:DescribeLockedSnapshots", LockTakenOver, Warning),
        ("kms:Decrypt", RestoreEncrypted, NO_KEY),
        ("kms:GenerateDataKeyWithoutPlaintext", Encrypt, NO_KEY),
        ("kms:CreateGrant", Encrypt, NO_KEY),
    ]
};

/// A policy, one of its statements, and one of the statement's actions.
type Element = (String, String, String);

/// An element, the feature that breaks without it, and the symptom.
type Needed = (Element, Feature, Shows);

const BY_FEATURE: [&str; 9] = [
    "base",
    "modify",
    "snapshots",
    "group-snapshots",
    "clone",
    "fast-restore-and-lock",
    "fence",
    "kms",
    "migrated",
];
/// Files that the policy of one cluster has no statements of.
const ASIDE: [&str; 3] = ["fence", "kms", "migrated"];

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
    for instance in [iam_world::NODE, iam_world::ELSEWHERE] {
        let refused = world.fence(fence_of(instance, Fence::Stop)).await;
        let refused = refused.expect_err("an instance without the cluster's tag");
        assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused:?}");
    }
    let made: BTreeSet<&str> = calls
        .iter()
        .filter_map(|row| row["action"].as_str())
        .filter(|action| action.starts_with("ec2:"))
        .collect();
    let rows = actions();
    let rows: BTreeSet<&str> = rows.iter().map(String::as_str).collect();
    assert_eq!(made, rows, "controller/ec2/src/calls.rs has a row for each call that is made");
}

/// Returns the EC2 actions that have a row in `controller/ec2/src/calls.rs`.
fn actions() -> BTreeSet<String> {
    let text = repository::read("controller/ec2/src/calls.rs");
    let rows = text.split("actions! {").nth(1).expect("the rows").lines().map(str::trim);
    let rows = rows.filter(|line| !line.starts_with("//"));
    rows.filter_map(|row| Some(format!("ec2:{}", row.split_once(": ")?.0))).collect()
}

/// Returns how often each element has decided about a call.
fn times(world: &IamWorld) -> BTreeMap<Element, u64> {
    let rows = rows(&world.report(), "statements");
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let element = |row| (text(row, "policy"), text(row, "statement"), text(row, "element"));
    rows.iter().map(|row| (element(row), row["times"].as_u64().unwrap_or_default())).collect()
}

/// Runs every feature. Returns a row for each element of the policies.
///
/// A feature's preparations are last steps of features before it, so the first feature that uses an
/// element needs it in its last step.
async fn needed(world: &IamWorld) -> Vec<Needed> {
    let mut first: BTreeMap<Element, Feature> = BTreeMap::new();
    let mut before = times(world);
    for &feature in Feature::ALL {
        must_run(world, feature).await;
        let after = times(world);
        for (element, times) in &after {
            if before.get(element) != Some(times) {
                first.entry(element.clone()).or_insert(feature);
            }
        }
        before = after;
    }
    let unused: Vec<_> = before.keys().filter(|element| !first.contains_key(element)).collect();
    assert!(unused.is_empty(), "no feature uses {unused:?}");
    let row = |(element, feature): (Element, Feature)| {
        let otherwise = SHOWN_OTHERWISE.iter().find(|(action, ..)| *action == element.2);
        let (feature, shows) =
            otherwise.map_or((feature, Shows::Refusal), |(_, feature, shows)| (*feature, *shows));
        (element, feature, shows)
    };
    first.into_iter().map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_policy_action_shows_in_error_or_log() {
    let policies = read_policies(&BY_FEATURE);
    let Some(world) = IamWorld::start(policies.clone()).await else { return };
    let needed: Arc<[Needed]> = needed(&world).await.into();
    let mut lanes = Vec::new();
    for lane in 0..LANES {
        let Some(world) = IamWorld::start(policies.clone()).await else { return };
        let needed = Arc::clone(&needed);
        lanes.push(tokio::spawn(async move {
            let mut wrong = Vec::new();
            for row in needed.iter().skip(lane).step_by(LANES) {
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
    let ((policy, statement, action), feature, shows) = row;
    world.plan_without(policy, statement, action);
    let result = world.run(*feature).await;
    world.restore();
    let clear = match (shows, &result) {
        (Shows::Refusal, Err(s)) => {
            let is_final = s.code() == Some(Code::PermissionDenied);
            let is_final_later = s.to_string().contains("final when it has been the answer");
            (is_final || is_final_later) && s.to_string().contains(action.as_str())
        }
        (Shows::Pending, Err(s)) => {
            s.code() == Some(Code::Aborted) && s.to_string().contains(action.as_str())
        }
        (Shows::Words(words), Err(s)) => s.to_string().contains(words),
        (Shows::Warning, Ok(())) => world.log().contains(action.as_str()),
        _ => false,
    };
    (!clear).then(|| format!("{feature:?} without {action} of {policy}/{statement}: {result:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modify_without_delete_tags_permission_succeeds_and_warns() {
    let Some(world) = IamWorld::start(read_policies(&BY_FEATURE)).await else { return };
    world.plan_without("modify", "ChangeTagsOfOwnVolumes", "ec2:DeleteTags");
    world.run(Feature::EndRatio).await.expect("the rate");
    assert!(world.log().contains("ec2:DeleteTags"), "{}", world.log());
}

/// The statements of the policies by feature, with the condition on the cluster's name. EC2's
/// instances belong to the cluster by one of two tags. Migrated volumes and fenced instances have
/// tags of their own, and keys belong to no cluster.
#[test]
fn cluster_scoped_policy_follows_from_feature_policies() {
    let name = "ebs.csi.aws.com/cluster-name";
    let own = |key: &str| format!(r#"{key}": "${{aws:PrincipalTag/eks-cluster-name}}""#);
    let mut statements = Vec::new();
    for feature in BY_FEATURE.iter().filter(|feature| !ASIDE.contains(feature)) {
        let text = repository::read(&format!("policy/iam/{feature}.json"));
        for statement in text.split("\n    {\n").skip(1) {
            let statement = statement.split("\n    }").next().unwrap_or_default();
            let scoped = statement.replace(r#"ebs.csi.aws.com/cluster": "true""#, &own(name));
            let sid = statement.split('"').nth(3).unwrap_or_default();
            match sid {
                "UseInstances" | "SnapshotVolumesOfInstances" => {
                    for (what, key) in [
                        ("InstancesOfManagedNodeGroups", "eks:cluster-name"),
                        ("TaggedInstances", name),
                    ] {
                        let condition = own(&format!("aws:ResourceTag/{key}"));
                        statements.push(format!(
                            "{},\n      \"Condition\": {{\n        \"StringEquals\": {{\n          \"{condition}\n        }}\n      }}",
                            scoped.replace("Instances\"", &format!("{what}\""))
                        ));
                    }
                }
                _ => statements.push(scoped),
            }
        }
    }
    let body = statements.join("\n    },\n    {\n");
    let made = format!(
        "{{\n  \"Version\": \"2012-10-17\",\n  \"Statement\": [\n    {{\n{body}\n    }}\n  ]\n}}\n"
    );
    repository::assert_generated("policy/iam/cluster-scoped.json", &made, "iam_policies");
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
    let refused = world.co.delete(&other).await.expect_err("another cluster's volume");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused:?}");
    let refused =
        world.publish(&other, iam_world::NODE).await.expect_err("another cluster's volume");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused:?}");
}

/// Returns the actions of EC2 that a text names as not allowed.
fn named(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| line.contains("allow this action"));
    let words = lines.flat_map(|line| line.split(|c: char| c != ':' && !c.is_alphanumeric()));
    let actions = words.map(|word| word.trim_end_matches(':'));
    actions.filter(|word| word.starts_with("ec2:")).map(str::to_owned).collect()
}

/// Returns what a user sees of a feature: whether it works, and the actions that are named as
/// missing by the error or the log.
fn seen(result: &Result<(), CoError>, log: &str) -> String {
    let quoted = |actions: BTreeSet<String>| {
        actions.iter().map(|action| format!("`{action}`")).collect::<Vec<_>>().join(", ")
    };
    match result {
        Ok(()) if named(log).is_empty() => "yes".to_owned(),
        Ok(()) => format!("yes; logs {}", quoted(named(log))),
        Err(e) if e.to_string().contains("encryption key") => "no; \"encryption key\"".to_owned(),
        Err(e) => format!("no; {}", quoted(named(&e.to_string()))),
    }
}

/// Returns a feature's name in words: `SetTag` is "set tag".
fn in_words(feature: Feature) -> String {
    let mut words = String::new();
    for c in format!("{feature:?}").chars() {
        if c.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
    }
    words
}

/// Returns what a user sees of each feature whose last step runs under these policies; nothing
/// where the controller is not built.
async fn seen_under(policies: Policies) -> Vec<String> {
    let Some(world) = IamWorld::start(read_policies(&BY_FEATURE)).await else { return Vec::new() };
    let mut cells = Vec::new();
    for &feature in Feature::ALL {
        world.plan(policies.clone());
        let before = world.log().len();
        let result = world.run(feature).await;
        world.restore();
        cells.push(seen(&result, &world.log()[before..]));
    }
    cells
}

/// The table in the policies' README has the features that differ between AWS's managed policies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readme_table_shows_features_under_managed_policies() {
    let (mut head, mut columns) = ("| Feature |".to_owned(), Vec::new());
    for (name, policies) in managed_policies() {
        head += &format!(" `{name}` |");
        columns.push(tokio::spawn(seen_under(policies)));
    }
    let line = |cell: &str| cell.repeat(columns.len());
    let mut made = format!("{head}\n|---|{}\n", line("---|"));
    let others = format!("| all others |{}\n", line(" yes |"));
    let mut cells = Vec::new();
    for column in columns {
        cells.push(column.await.expect("a column"));
    }
    if cells.iter().any(Vec::is_empty) {
        return;
    }
    for (i, &feature) in Feature::ALL.iter().enumerate() {
        let row: Vec<&str> = cells.iter().map(|column| column[i].as_str()).collect();
        if row.iter().any(|cell| *cell != "yes") {
            made += &format!("| {} | {} |\n", in_words(feature), row.join(" | "));
        }
    }
    made += &others;
    let page = repository::read("policy/iam/README.md");
    let start = page.find("| Feature | `Amazon").expect("the table");
    let end = page[start..].find("\n\n").map_or(page.len(), |end| start + end + 1);
    let page = format!("{}{made}{}", &page[..start], &page[end..]);
    repository::assert_generated("policy/iam/README.md", &page, "iam_policies");
}

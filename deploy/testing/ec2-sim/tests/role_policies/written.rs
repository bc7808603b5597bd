//! Whether IAM would accept the files, and whether their conditions can hold: the actions that the
//! driver uses have resource types and condition keys, those of KMS as
//! `list_awskeymanagementservice.html` of the Service Authorization Reference lists them.

use std::collections::BTreeSet;

use ec2_sim::{Document, Keys, ResourceTypes};
use serde_json::Value;

use super::world::rows;
use super::{BY_FEATURE, CLUSTER_SCOPED, text};

const KEY: Keys = &["kms:ViaService", "kms:CallerAccount"];
const GRANT: Keys = &["kms:ViaService", "kms:CallerAccount", "kms:GrantIsForAWSResource"];

const OF_KMS: [(&str, ResourceTypes); 3] = [
    ("kms:CreateGrant", &[("key", GRANT)]),
    ("kms:Decrypt", &[("key", KEY)]),
    ("kms:GenerateDataKeyWithoutPlaintext", &[("key", KEY)]),
];

/// What the simulator answers and the driver never asks.
const NOT_CALLED: [&str; 3] = ["ModifySnapshotTier", "RestoreSnapshotTier", "UnlockSnapshot"];

/// Returns the driver's actions with their resource types.
fn actions() -> Vec<(String, ResourceTypes)> {
    let of_ec2 = ec2_sim::resource_types().filter(|(name, _)| !NOT_CALLED.contains(name));
    let of_ec2 = of_ec2.map(|(name, types)| (format!("ec2:{name}"), types));
    of_ec2.chain(OF_KMS.map(|(name, types)| (name.to_owned(), types))).collect()
}

/// Statements that change something without a condition. The volume of the same call has one.
const UNCONDITIONAL: &[(&str, &str)] =
    &[("base", "UseInstances"), ("group-snapshots", "SnapshotVolumesOfInstances")];

/// Trust policies, which have principals and no resources, and their actions. The chart's tests
/// compare what they name with the chart's account.
const TRUST: &[(&str, &[&str])] = &[
    ("trust", &["sts:AssumeRole", "sts:TagSession"]),
    ("trust-irsa", &["sts:AssumeRoleWithWebIdentity"]),
];

/// The most characters without white space in a managed policy, and in all inline policies of a
/// role together (IAM User Guide, "IAM and AWS STS quotas").
const MANAGED: usize = 6_144;
const INLINE: usize = 10_240;

fn size(text: &str) -> usize {
    text.chars().filter(|c| !c.is_whitespace()).count()
}

/// Returns one value, or the values of a list.
fn all(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

/// Returns the type of a resource as the reference names it: `volume`, and `*` for each.
fn kind(resource: &str) -> &str {
    let name = resource.rsplit(':').next().unwrap_or_default();
    name.split('/').next().unwrap_or_default()
}

fn is_of(key: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('/') {
        Some(_) => key.starts_with(pattern) && key != pattern,
        None => key == pattern,
    }
}

/// Returns the statements of a file.
fn statements(text: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(text).expect("JSON");
    document["Statement"].as_array().expect("statements").clone()
}

/// Returns what is wrong with a file.
fn findings(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let parsed = serde_json::from_str::<Document>(text).map_err(|e| e.to_string());
    if let Err(why) = parsed.and_then(|document| document.check()) {
        return vec![why];
    }
    if size(text) > MANAGED {
        found.push(format!("{} characters are more than {MANAGED}", size(text)));
    }
    let mut sids = BTreeSet::new();
    for statement in &statements(text) {
        let sid = statement["Sid"].as_str().unwrap_or_default();
        if sid.is_empty() || !sids.insert(sid.to_owned()) {
            found.push(format!("the Sid {sid:?} is missing or there twice"));
        }
        let what = of_statement(statement, UNCONDITIONAL.contains(&(file, sid)));
        found.extend(what.into_iter().map(|what| format!("{sid}: {what}")));
    }
    found
}

fn of_statement(statement: &Value, may_be_unconditional: bool) -> Vec<String> {
    let (mut found, actions) = (Vec::new(), actions());
    let operators = || statement["Condition"].as_object().into_iter().flatten();
    let keys: Vec<(&str, &str)> = operators()
        .flat_map(|(operator, keys)| {
            keys.as_object().into_iter().flatten().map(|(key, _)| (operator.as_str(), key.as_str()))
        })
        .collect();
    for (operator, key) in &keys {
        let mut known = actions.iter().flat_map(|(_, types)| *types).flat_map(|(_, keys)| *keys);
        if !known.any(|pattern| is_of(key, pattern)) {
            found.push(format!("unknown condition key {key}"));
        }
        if key.contains("${") {
            found.push(format!("IAM replaces no variable in the condition key {key}"));
        }
        let present = &statement["Condition"]["Null"][*key];
        if operator.starts_with("ForAllValues:") && all(present) != ["false"] {
            found.push(format!("{operator} of {key} holds without {key}: Null is missing"));
        }
    }
    let resources = [all(&statement["Resource"]), all(&statement["NotResource"])].concat();
    for action in all(&statement["Action"]) {
        let Some((_, types)) = actions.iter().find(|(name, _)| name == action) else {
            found.push(format!("unknown action {action}"));
            continue;
        };
        if !types.is_empty() && keys.is_empty() && !may_be_unconditional {
            found.push(format!("{action} has no condition"));
        }
        for resource in &resources {
            let kind = kind(resource);
            let supported = match types.iter().find(|(name, _)| *name == kind) {
                Some((_, supported)) => *supported,
                None if types.is_empty() && kind == "*" => &[],
                None => {
                    found.push(format!("{action} has no resource type {kind}"));
                    continue;
                }
            };
            for (_, key) in &keys {
                if !supported.iter().any(|pattern| is_of(key, pattern)) {
                    found.push(format!("{action} on {kind} has no condition key {key}"));
                }
            }
        }
    }
    found
}

/// Returns the names of all files in the folder.
fn files() -> Vec<String> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let folder = std::path::Path::new(&root).join("../../../policy/iam");
    let entries = std::fs::read_dir(&folder).expect("the folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.filter_map(|name| Some(name.to_str()?.strip_suffix(".json")?.to_owned())).collect()
}

#[test]
fn every_file_is_as_iam_demands() {
    let (mut listed, mut used) = (BTreeSet::new(), BTreeSet::new());
    let is_trust = |file: &String| TRUST.iter().any(|(name, _)| name == file);
    for file in files().into_iter().filter(|file| !is_trust(file)) {
        let text = text(&file);
        assert_eq!(findings(&file, &text), [""; 0], "{file}");
        for statement in statements(&text) {
            used.extend(all(&statement["Action"]).into_iter().map(str::to_owned));
        }
        listed.insert(file);
    }
    let known = [BY_FEATURE, CLUSTER_SCOPED].concat();
    assert_eq!(listed, known.into_iter().map(str::to_owned).collect(), "the tests have each file");
    assert_eq!(used, actions().into_iter().map(|(action, _)| action).collect());
    for set in [BY_FEATURE, CLUSTER_SCOPED] {
        let inline: usize = set.iter().map(|file| size(&text(file))).sum();
        assert!(inline <= INLINE, "{set:?} are {inline} characters");
    }
}

#[test]
fn trust_policies_name_one_account_exactly() {
    for (file, actions) in TRUST {
        for statement in statements(&text(file)) {
            assert_eq!(all(&statement["Action"]), *actions, "{file}");
            assert!(statement["Principal"].is_object(), "{file}: everybody");
            let conditions = statement["Condition"].as_object().expect("conditions");
            assert_eq!(conditions.keys().collect::<Vec<_>>(), ["StringEquals"], "{file}");
            let equal = conditions["StringEquals"].as_object().expect("keys");
            assert_eq!(equal.len(), 2, "{file}");
            let is_exact = |value: &Value| all(value).iter().all(|one| !one.contains('*'));
            assert!(equal.values().all(is_exact), "{file}: {equal:?}");
        }
    }
}

/// File, a text in it, what replaces the text, a part of the finding.
const FAULTS: &str = r#"
base | ec2:CreateVolume" | ec2:CreateVolumes" | unknown action ec2:CreateVolumes|
base | ec2:CreateVolume" | ec2:Create*" | unknown action ec2:Create*|
base | "UseInstances" | "UseOwnVolumes" | "UseOwnVolumes" is missing or there twice|
base | "UseInstances" | "UseNodes" | UseNodes: ec2:AttachVolume has no condition|
base | 2012-10-17 | 2008-10-17 | must be "2012-10-17"|
base | :instance/* | :snapshot/* | ec2:AttachVolume has no resource type snapshot|
fence | arn:*:ec2:*:*:instance/* | * | ec2:StopInstances has no resource type *|
kms | kms:ViaService | kms:ViaServices | unknown condition key kms:ViaServices|
kms | kms:ViaService | kms:GrantIsForAWSResource | kms:Decrypt on key has no condition key|
fast-restore-and-lock | SnapshotLockDuration | CoolOffPeriod | unknown condition key ec2:CoolOffPeriod|
fast-restore-and-lock | LockSnapshot" | DeleteSnapshot" | ec2:DeleteSnapshot on snapshot has no condition key ec2:SnapshotLockDuration|
base | "aws:RequestTag/ | "aws:ResourceTag/ | ec2:CreateVolume on volume has no condition key aws:ResourceTag/|
base | "aws:ResourceTag/ | "ec2:CreateAction/ | unknown condition key ec2:CreateAction/|
clone | ec2:ResourceTag | aws:ResourceTag | ec2:CopyVolumes on volume has no condition key aws:ResourceTag|
clone | NotResource | Resources | unknown field|
migrated | /NAME | /${aws:PrincipalTag/eks-cluster-name} | IAM replaces no variable|
modify | "Null" | "Bool" | holds without aws:TagKeys|
modify | "aws:TagKeys": "false" | "aws:TagKeys": "true" | holds without aws:TagKeys|
modify | "CSIVolumeName" | LONG | are more than 6144|
"#;

#[test]
fn planted_faults_are_found() {
    let long = format!("\"{}\"", "a".repeat(MANAGED));
    for [file, from, to, finding] in rows(FAULTS) {
        let text = text(file);
        assert!(text.contains(from), "{file} has no {from}");
        let found = findings(file, &text.replace(from, &to.replace("LONG", &long)));
        assert!(found.iter().any(|one| one.contains(finding)), "{file} {to}: {found:?}");
    }
}

//! Which calls the policies allow: those of the driver, and not those of somebody who has stolen
//! its role. A refused call has a condition that refuses it.

use ec2_sim::{Document, IamSetting};
use serde_json::{Value, json};

use super::world::{World, request, rows, tag_list, tagged, text};
use super::{BY_FEATURE, CLUSTER, CLUSTER_SCOPED, Policies, policies};

const KEY: &str = "AKIADRIVER";

/// An owner, its tags, and whether the policies by feature and the cluster-scoped one allow to use
/// what has these tags.
type Owner = (&'static str, &'static [(&'static str, &'static str)], bool, bool);

const OWNED: (&str, &str) = ("ebs.csi.aws.com/cluster", "true");

const OWNERS: &[Owner] = &[
    ("own", &[OWNED, ("ebs.csi.aws.com/cluster-name", CLUSTER)], true, true),
    ("another", &[OWNED, ("ebs.csi.aws.com/cluster-name", "another")], true, false),
    ("nobody", &[("team", "red")], false, false),
    // IAM compares the keys of tags without regard to case, and no condition can change that.
    (
        "cased",
        &[("EBS.csi.aws.com/cluster", "true"), ("ebs.CSI.aws.com/cluster-name", CLUSTER)],
        true,
        true,
    ),
];

/// Volumes of the in-tree driver, and one that its cluster owns and no claim asked for.
const MIGRATED: &[Owner] = &[
    ("migrated", &[("kubernetes.io/cluster/test", "owned"), (CLAIM, "claim")], true, false),
    ("elsewhere", &[("kubernetes.io/cluster/another", "owned"), (CLAIM, "claim")], false, false),
    ("claimed", &[(CLAIM, "claim")], false, false),
    ("system", &[("kubernetes.io/cluster/test", "owned")], false, false),
];
const CLAIM: &str = "kubernetes.io/created-for/pvc/name";

/// Calls that use one volume.
const OF_VOLUMES: &[(&str, &str)] = &[
    ("AttachVolume", "VolumeId={volume}&InstanceId={node}&Device=/dev/xvdba"),
    ("DetachVolume", "VolumeId={volume}&InstanceId={node}"),
    ("DeleteVolume", "VolumeId={volume}"),
    ("ModifyVolume", "VolumeId={volume}&Size=9"),
    ("CreateSnapshot", "VolumeId={volume}&{snapshot-tags}"),
    ("CopyVolumes", "SourceVolumeId={volume}&VolumeType=gp3&{volume-tags}"),
];

/// The rest of a call that takes the snapshots of an instance's volumes, of which it has one.
const TOGETHER: &str = "InstanceSpecification.ExcludeBootVolume=true&{snapshot-tags}";

/// Returns the id of the instance that holds a volume of this owner.
fn holder_of(owner: &str) -> String {
    format!("i-{:017x}", owner.bytes().fold(7, |id: u64, byte| id * 31 + u64::from(byte)) >> 8)
}

/// Calls that use one snapshot.
const OF_SNAPSHOTS: &[(&str, &str)] = &[
    (
        "CreateVolume",
        "AvailabilityZone=us-east-1a&SnapshotId={snapshot}&VolumeType=gp3&{volume-tags}",
    ),
    ("DeleteSnapshot", "SnapshotId={snapshot}"),
    ("EnableFastSnapshotRestores", "SourceSnapshotId.1={snapshot}&AvailabilityZone.1=us-east-1a"),
    ("LockSnapshot", "SnapshotId={snapshot}&LockMode=compliance&LockDuration=365"),
];

/// Instances: a name in the calls, its id, its tags.
const INSTANCES: &[(&str, &str, (&str, &str))] = &[
    ("node", "i-0aaaaaaaaaaaaaaa1", ("eks:cluster-name", CLUSTER)),
    ("tagged", "i-0aaaaaaaaaaaaaaa2", ("ebs.csi.aws.com/cluster-name", CLUSTER)),
    ("foreign", "i-0aaaaaaaaaaaaaaa3", ("eks:cluster-name", "another")),
    ("fenced", "i-0aaaaaaaaaaaaaaa4", ("EBS.csi.aws.com/fence", CLUSTER)),
    ("fenced-by-another", "i-0aaaaaaaaaaaaaaa5", ("ebs.csi.aws.com/fence", "another")),
];

/// Action, parameters, and which allow it: the policies by feature, and the cluster-scoped one.
/// Whether a lock until a date has a duration is not documented. Rows with `{adopt}`, or with the
/// tag of a cluster for `{nobody}`, would adopt what is not the cluster's.
const CALLS: &str = "
CreateVolume | AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3&{volume-tags} | both|
CreateVolume | AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3 | neither|
CopyVolumes | SourceVolumeId={own}&VolumeType=gp3 | neither|
CreateSnapshot | VolumeId={own} | neither|
AttachVolume | VolumeId={own}&InstanceId={tagged}&Device=/dev/xvdba | both|
AttachVolume | VolumeId={own}&InstanceId={foreign}&Device=/dev/xvdba | by feature|
DetachVolume | VolumeId={own}&InstanceId={foreign} | by feature|
LockSnapshot | SnapshotId={own.snapshot}&LockMode=compliance&LockDuration=366 | neither|
LockSnapshot | SnapshotId={own.snapshot}&LockMode=compliance&ExpirationDate=2099-01-01T00:00:00Z | neither|
StopInstances | InstanceId.1={fenced} | both|
StopInstances | InstanceId.1={fenced-by-another} | neither|
StopInstances | InstanceId.1={node} | neither|
TerminateInstances | InstanceId.1={fenced} | both|
TerminateInstances | InstanceId.1={fenced-by-another} | neither|
TerminateInstances | InstanceId.1={foreign} | neither|
CreateTags | ResourceId.1={own}&Tag.1.Key=team&Tag.1.Value=red | both|
CreateTags | ResourceId.1={own}&Tag.1.Key=CSIVolumeName&Tag.1.Value=x | neither|
CreateTags | ResourceId.1={own}&Tag.1.Key=csivolumename&Tag.1.Value=x | neither|
CreateTags | ResourceId.1={own}&Tag.1.Key=ebs.csi.aws.com/cluster-name&Tag.1.Value=x | neither|
CreateTags | ResourceId.1={own}&Tag.1.Key=EBS.csi.aws.com/cluster-name&Tag.1.Value=x | neither|
CreateTags | ResourceId.1={own}&Tag.1.Key=kubernetes.io/created-for/pvc/name&Tag.1.Value=x | neither|
CreateTags | ResourceId.1={nobody}&Tag.1.Key=ebs.csi.aws.com/cluster&Tag.1.Value=true | neither|
CreateTags | ResourceId.1={nobody}&Tag.1.Key=EBS.csi.aws.com/cluster&Tag.1.Value=true | neither|
CreateTags | ResourceId.1={nobody}&{adopt} | neither|
CreateTags | ResourceId.1={another}&{adopt} | neither|
CreateTags | ResourceId.1={nobody.snapshot}&{adopt} | neither|
CreateTags | ResourceId.1={foreign}&Tag.1.Key=ebs.csi.aws.com/fence&Tag.1.Value=test | neither|
DeleteTags | ResourceId.1={own}&Tag.1.Key=team | both|
DeleteTags | ResourceId.1={own} | neither|
DeleteTags | ResourceId.1={own}&Tag.1.Key=team&Tag.2.Key=ebs.csi.aws.com/cluster | neither|
DeleteTags | ResourceId.1={another}&Tag.1.Key=team | by feature|
DeleteTags | ResourceId.1={nobody}&Tag.1.Key=team | neither|
";

/// Questions to IAM that no call of the simulator asks: action, resource, condition keys, answers.
type Question = (&'static str, &'static str, &'static [(&'static str, &'static str)], bool, bool);

const NEW_VOLUME: &str = "arn:aws:ec2:us-east-1:111122223333:volume/*";
const NEW_SNAPSHOT: &str = "arn:aws:ec2:us-east-1::snapshot/*";
const AN_INSTANCE: &str = "arn:aws:ec2:us-east-1:111122223333:instance/i-0aaaaaaaaaaaaaaa3";
const A_KEY: &str = "arn:aws:kms:us-east-1:111122223333:key/k";
const CHINESE_KEY: &str = "arn:aws-cn:kms:cn-north-1:111122223333:key/k";
const EC2: (&str, &str) = ("kms:ViaService", "ec2.us-east-1.amazonaws.com");
const CHINESE_EC2: (&str, &str) = ("kms:ViaService", "ec2.cn-north-1.amazonaws.com.cn");
const S3: (&str, &str) = ("kms:ViaService", "s3.us-east-1.amazonaws.com");
const FOR_AWS: (&str, &str) = ("kms:GrantIsForAWSResource", "true");
const OF_ANOTHER: (&str, &str) = ("aws:ResourceTag/eks:cluster-name", "another");

const QUESTIONS: &[Question] = &[
    ("kms:Decrypt", A_KEY, &[EC2], true, true),
    ("kms:Decrypt", CHINESE_KEY, &[CHINESE_EC2], true, true),
    ("kms:Decrypt", A_KEY, &[], false, false),
    ("kms:GenerateDataKeyWithoutPlaintext", A_KEY, &[S3], false, false),
    ("kms:CreateGrant", A_KEY, &[EC2, FOR_AWS], true, true),
    ("kms:CreateGrant", CHINESE_KEY, &[CHINESE_EC2, FOR_AWS], true, true),
    ("kms:CreateGrant", A_KEY, &[EC2, ("kms:GrantIsForAWSResource", "false")], false, false),
    ("kms:CreateGrant", A_KEY, &[FOR_AWS], false, false),
    // What another policy of the role lets it create gets no tags.
    ("ec2:CreateTags", NEW_VOLUME, &[("ec2:CreateAction", "CreateVolume")], false, false),
    ("ec2:CreateTags", NEW_VOLUME, &[("ec2:CreateAction", "CopyVolumes")], false, false),
    ("ec2:CreateTags", NEW_SNAPSHOT, &[("ec2:CreateAction", "CreateSnapshot")], false, false),
    ("ec2:CreateTags", NEW_SNAPSHOT, &[("ec2:CreateAction", "CreateSnapshots")], false, false),
    ("ec2:CreateSnapshots", NEW_SNAPSHOT, &[], false, false),
    ("ec2:CreateSnapshots", AN_INSTANCE, &[OF_ANOTHER], true, false),
];

fn setting(policies: &Policies) -> IamSetting {
    let principal = json!({
        "arn": "arn:aws:iam::111122223333:role/ebs-csi", "access_keys": [KEY],
        "tags": {"eks-cluster-name": CLUSTER}, "policies": policies,
    });
    serde_json::from_value(json!({"principals": [principal]})).expect("a setting")
}

/// A simulator with resources of every owner, and the calls with their ids.
struct Rows {
    world: World,
    calls: Vec<(&'static str, String, bool, bool)>,
}

impl Rows {
    fn new() -> Self {
        let owners = || OWNERS.iter().chain(MIGRATED);
        let instance = |id: &str, key: &str, value: &str| json!({"id": id, "zone": "us-east-1a", "tags": {key: value}});
        let named = INSTANCES.iter().map(|(_, id, (key, value))| instance(id, key, value));
        let holders =
            owners().map(|(owner, ..)| instance(&holder_of(owner), "eks:cluster-name", CLUSTER));
        let instances: Vec<Value> = named.chain(holders).collect();
        let mut world = World::with(json!({"instances": instances, "limits": {"enabled": false}}));
        let own = OWNERS[0].1;
        let mut names = vec![
            ("{volume-tags}".to_owned(), tagged("volume", own)),
            ("{snapshot-tags}".to_owned(), tagged("snapshot", own)),
            ("{adopt}".to_owned(), tag_list("Tag", own)),
        ];
        names.extend(INSTANCES.iter().map(|(name, id, _)| (format!("{{{name}}}"), (*id).into())));
        let mut calls = Vec::new();
        for (owner, tags, by_feature, scoped) in owners() {
            let (held, holder) = (world.volume(&tagged("volume", tags)), holder_of(owner));
            let place = format!("VolumeId={held}&InstanceId={holder}&Device=/dev/xvdba");
            world.ok("AttachVolume", &place);
            let together = format!("InstanceSpecification.InstanceId={holder}&{TOGETHER}");
            calls.push(("CreateSnapshots", together, *by_feature, *scoped));
            let id = world.volume(&tagged("volume", tags));
            names.push((format!("{{{owner}}}"), id.clone()));
            calls.extend(OF_VOLUMES.iter().map(|(action, parameters)| {
                (*action, parameters.replace("{volume}", &id), *by_feature, *scoped)
            }));
        }
        let source = world.volume("");
        for (owner, tags, by_feature, scoped) in OWNERS {
            let parameters = format!("VolumeId={source}&{}", tagged("snapshot", tags));
            let id = text(&world.ok("CreateSnapshot", &parameters), "snapshotId");
            names.push((format!("{{{owner}.snapshot}}"), id.clone()));
            calls.extend(OF_SNAPSHOTS.iter().map(|(action, parameters)| {
                (*action, parameters.replace("{snapshot}", &id), *by_feature, *scoped)
            }));
        }
        world.step(1);
        for [action, parameters, allowed] in rows(CALLS) {
            let (by_feature, scoped) = match allowed {
                "both" => (true, true),
                "by feature" => (true, false),
                _ => {
                    assert_eq!(allowed, "neither");
                    (false, false)
                }
            };
            calls.push((action, parameters.to_owned(), by_feature, scoped));
        }
        for (_, parameters, ..) in &mut calls {
            for (name, value) in &names {
                *parameters = parameters.replace(name, value);
            }
            assert!(!parameters.contains('{'), "{parameters}");
        }
        Self { world, calls }
    }

    /// Returns the rows that policies answer otherwise than the tables say.
    fn wrong(&mut self, policies: &Policies, is_scoped: bool) -> Vec<String> {
        self.world.sim.iam.change(setting(policies)).expect("policies");
        let mut wrong = Vec::new();
        for (action, parameters, by_feature, scoped) in &self.calls {
            let request = request(KEY, "us-east-1", action, &format!("{parameters}&DryRun=true"));
            let reply = self.world.sim.handle(self.world.now, &request);
            let body = String::from_utf8(reply.body).expect("text");
            let is_allowed = match text(&body, "Code").as_str() {
                "DryRunOperation" => true,
                "UnauthorizedOperation" => false,
                other => panic!("{action} {parameters}: {other}: {body}"),
            };
            if is_allowed != if is_scoped { *scoped } else { *by_feature } {
                wrong.push(format!("{action} {parameters}: {is_allowed}"));
            }
        }
        for (action, resource, keys, by_feature, scoped) in QUESTIONS {
            let allows = |document: &Value| {
                let document: Document =
                    serde_json::from_value(document.clone()).expect("a policy document");
                document.allows(action, resource, keys)
            };
            let is_allowed = policies.values().any(allows);
            if is_allowed != if is_scoped { *scoped } else { *by_feature } {
                wrong.push(format!("{action} {resource} {keys:?}: {is_allowed}"));
            }
        }
        wrong
    }
}

#[test]
fn policies_allow_driver_requests_and_refuse_others() {
    let mut rows = Rows::new();
    assert_eq!(rows.wrong(&policies(BY_FEATURE), false), [""; 0]);
    assert_eq!(rows.wrong(&policies(CLUSTER_SCOPED), true), [""; 0]);
}

#[test]
fn encrypted_volume_stays_in_every_partition() {
    for region in ["us-east-1", "us-gov-west-1", "cn-north-1"] {
        let zone = format!("{region}a");
        let mut world = World::with(json!({
            "region": region, "zones": [{"name": zone, "id": "az1"}], "instances": [],
            "iam": setting(&policies(BY_FEATURE)),
        }));
        let mut call = |action: &str, parameters: &str| {
            let reply = world.sim.handle(world.now, &request(KEY, region, action, parameters));
            world.step(10_000);
            String::from_utf8(reply.body).expect("text")
        };
        let tags = tagged("volume", OWNERS[0].1);
        let encrypted = "Size=1&VolumeType=gp3&Encrypted=true&KmsKeyId=k";
        let made = call("CreateVolume", &format!("AvailabilityZone={zone}&{encrypted}&{tags}"));
        let id = text(&made, "volumeId");
        let found = call("DescribeVolumes", &format!("VolumeId.1={id}"));
        assert_eq!(text(&found, "status"), "available", "{region}: {made} {found}");
    }
}

#[test]
fn migrated_policy_without_cluster_name_allows_nothing() {
    let unnamed = serde_json::from_str(&super::text("migrated")).expect("a policy document");
    let mut rows = Rows::new();
    rows.calls.retain(|(_, _, by_feature, _)| *by_feature);
    let allowed = rows.wrong(&Policies::from([("migrated".to_owned(), unnamed)]), true);
    let allowed: Vec<_> = allowed.iter().filter(|row| row.ends_with("true")).collect();
    assert!(allowed.is_empty(), "{allowed:?}");
}

/// Returns the policies with one guard less, and what is missing: each condition, each of several
/// values of a condition, and each list of resources that are left out.
fn weakened(policies: &Policies) -> Vec<(String, Policies)> {
    let mut out = Vec::new();
    for (file, document) in policies {
        let statements = document["Statement"].as_array().expect("statements");
        for (i, statement) in statements.iter().enumerate() {
            let mut add = |what: String, change: &dyn Fn(&mut Value)| {
                let mut weaker = policies.clone();
                change(&mut weaker.get_mut(file).expect("the file")["Statement"][i]);
                out.push((format!("{file}: {}: {what}", statement["Sid"]), weaker));
            };
            if !statement["NotResource"].is_null() {
                add("NotResource".to_owned(), &|statement| {
                    let statement = statement.as_object_mut().expect("a statement");
                    statement.remove("NotResource");
                    statement.insert("Resource".to_owned(), json!("*"));
                });
            }
            for (operator, keys) in statement["Condition"].as_object().into_iter().flatten() {
                for (key, wanted) in keys.as_object().expect("keys") {
                    let what = format!("{operator} {key}");
                    add(what.clone(), &|statement| {
                        let condition = statement["Condition"].as_object_mut();
                        let condition = condition.expect("a condition");
                        let keys = condition[operator].as_object_mut().expect("keys");
                        keys.remove(key);
                    });
                    for (n, value) in wanted.as_array().into_iter().flatten().enumerate() {
                        add(format!("{what} {value}"), &|statement| {
                            let wanted = statement["Condition"][operator][key].as_array_mut();
                            wanted.expect("values").remove(n);
                        });
                    }
                }
            }
        }
    }
    out
}

#[test]
fn every_condition_changes_the_answer_to_some_call() {
    let mut rows = Rows::new();
    for (files, is_scoped, least) in [(BY_FEATURE, false, 30), (CLUSTER_SCOPED, true, 30)] {
        let weakened = weakened(&policies(files));
        assert!(weakened.len() >= least, "{} conditions", weakened.len());
        let unneeded = weakened.iter().filter(|(_, p)| rows.wrong(p, is_scoped).is_empty());
        let unneeded: Vec<_> = unneeded.map(|(what, _)| what).collect();
        assert!(unneeded.is_empty(), "no row fails without {unneeded:#?}");
    }
}

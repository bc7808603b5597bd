//! What AWS's managed policies for EBS CSI drivers allow, as the AWS Managed Policy Reference shows
//! them (<https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html>):
//! AmazonEBSCSIDriverPolicy version 15, the other two version 1 (of 2026-04-16).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Policies;

/// A tag's key and value.
type Tag = (&'static str, &'static str);

const DRIVER: Tag = ("ebs.csi.aws.com/cluster", "true");
const OF_CLUSTER: Tag = ("ebs.csi.aws.com/cluster-name", "${aws:PrincipalTag/eks-cluster-name}");
const CLAIM: Tag = ("kubernetes.io/created-for/pvc/name", "*");
const REQUESTED: &str = "aws:RequestTag";
const EXISTING: &str = "ec2:ResourceTag";
const MANAGE: &str = "ModifyVolume AttachVolume DetachVolume DeleteVolume";
const ATTACH: &str = "AttachVolume DetachVolume";

/// Returns a statement that allows actions of EC2 on types of resources.
fn allow(actions: &str, resources: &str, condition: Value) -> Value {
    let action = |name: &str| format!("ec2:{name}");
    let resource = |kind: &str| match kind {
        "*" => kind.to_owned(),
        kind => format!("arn:aws:ec2:*:*:{kind}"),
    };
    let actions: Vec<String> = actions.split(' ').map(action).collect();
    let resources: Vec<String> = resources.split(' ').map(resource).collect();
    json!({"Effect": "Allow", "Action": actions, "Resource": resources, "Condition": condition})
}

/// Returns a condition on a tag. The value `*` stands for any.
fn tag(of: &str, (key, value): Tag) -> Value {
    let operator = if value == "*" { "StringLike" } else { "StringEquals" };
    json!({operator: {format!("{of}/{key}"): value}})
}

/// Returns the statements that the three policies have in common.
fn common() -> Vec<Value> {
    let reads = "DescribeAvailabilityZones DescribeInstances DescribeInstanceTypes \
        DescribeSnapshots DescribeVolumes DescribeVolumesModifications DescribeVolumeStatus";
    let creation = ["CreateVolume", "CreateSnapshot", "CopyVolumes"];
    let creation = json!({"StringEquals": {"ec2:CreateAction": creation}});
    vec![allow(reads, "*", json!({})), allow("CreateTags", "volume/* snapshot/*", creation)]
}

/// Returns the statements of AmazonEBSCSIDriverPolicy: little depends on a tag.
fn older() -> Vec<Value> {
    let any = json!({});
    let mut all = common();
    let volume = "CreateSnapshot ModifyVolume AttachVolume DetachVolume";
    all.extend([
        allow(volume, "volume/*", any.clone()),
        allow(ATTACH, "instance/*", any.clone()),
        allow("CopyVolumes", "volume/vol-*", any.clone()),
        allow("CreateVolume EnableFastSnapshotRestores", "snapshot/*", any.clone()),
        allow("DeleteTags", "volume/* snapshot/*", any),
        allow("DeleteVolume", "volume/*", tag(EXISTING, CLAIM)),
    ]);
    for name in [DRIVER, ("CSIVolumeName", "*")] {
        all.push(allow("CreateVolume CopyVolumes", "volume/*", tag(REQUESTED, name)));
        all.push(allow("DeleteVolume", "volume/*", tag(EXISTING, name)));
    }
    for name in [DRIVER, ("CSIVolumeSnapshotName", "*")] {
        all.push(allow("CreateSnapshot", "snapshot/*", tag(REQUESTED, name)));
        all.push(allow("DeleteSnapshot LockSnapshot", "snapshot/*", tag(EXISTING, name)));
    }
    all
}

/// Returns the statements of a newer policy, which allows to use what has the tag `own`.
fn newer(own: Tag) -> Vec<Value> {
    let mut all = common();
    let snapshot = "CreateVolume EnableFastSnapshotRestores DeleteSnapshot LockSnapshot";
    let mut edit = tag(EXISTING, own);
    edit["Null"] = json!({"aws:TagKeys": "false"});
    let fixed = [DRIVER.0, OF_CLUSTER.0, CLAIM.0];
    edit["ForAllValues:StringNotEquals"] = json!({"aws:TagKeys": fixed});
    all.extend([
        allow("CreateVolume CopyVolumes", "volume/*", tag(REQUESTED, own)),
        allow("CreateSnapshot", "snapshot/*", tag(REQUESTED, own)),
        allow("CopyVolumes", "volume/vol-*", tag(EXISTING, own)),
        allow("CreateSnapshot", "volume/*", tag(EXISTING, own)),
        allow(MANAGE, "volume/*", tag(EXISTING, own)),
        allow(snapshot, "snapshot/*", tag(EXISTING, own)),
        allow("CreateTags DeleteTags", "volume/*", edit),
    ]);
    all
}

/// Returns AWS's managed policies by name.
pub(crate) fn managed_policies() -> Vec<(&'static str, Policies)> {
    let mut second = newer(DRIVER);
    second.extend([
        allow("CopyVolumes", "volume/vol-*", tag(EXISTING, CLAIM)),
        allow(MANAGE, "volume/*", tag(EXISTING, CLAIM)),
        allow(ATTACH, "instance/*", json!({})),
    ]);
    let mut scoped = newer(OF_CLUSTER);
    for key in ["eks:cluster-name", OF_CLUSTER.0] {
        scoped.push(allow(ATTACH, "instance/*", tag(EXISTING, (key, OF_CLUSTER.1))));
    }
    let policy = |(name, statements): (&'static str, Vec<Value>)| {
        let document = json!({"Version": "2012-10-17", "Statement": statements});
        let document = serde_json::from_value(document).expect("a policy document");
        (name, Policies(BTreeMap::from([(name.to_owned(), document)])))
    };
    [
        ("AmazonEBSCSIDriverPolicy", older()),
        ("AmazonEBSCSIDriverPolicyV2", second),
        ("AmazonEBSCSIDriverEKSClusterScopedPolicy", scoped),
    ]
    .map(policy)
    .into()
}

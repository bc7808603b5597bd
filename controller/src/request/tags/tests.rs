//! Tests the sets of tags, byte for byte, and which tag overrides which.

use super::*;
use ebs_csi_parameters::Claim;
use ebs_csi_proto::Condition;

fn class(tags: &[&str]) -> VolumeParameters {
    VolumeParameters {
        claim: Claim {
            name: "data".to_owned(),
            namespace: "shop".to_owned(),
            volume: "pvc-1".to_owned(),
        },
        tags: tags.iter().map(|t| (*t).to_owned()).collect(),
        ..Default::default()
    }
}

fn pairs(tags: &Tags) -> Vec<(&str, &str)> {
    tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

#[test]
fn all_volume_tags_match_go_driver() {
    let settings = TagSettings { cluster_id: Some("prod".to_owned()), ..Default::default() };
    let mut class = class(&[]);
    class.iops_per_gib = Some(10);
    class.raise_iops_on_modify = Some(true);
    let tags = settings.of_volume("pvc-1", &class, &VolumeAttributes::default()).unwrap();
    assert_eq!(
        pairs(&tags),
        [
            ("CSIVolumeName", "pvc-1"),
            ("KubernetesCluster", "prod"),
            ("Name", "prod-dynamic-pvc-1"),
            ("ebs.csi.aws.com/AllowAutoIOPSIncreaseOnModify", "true"),
            ("ebs.csi.aws.com/IOPSPerGb", "10"),
            ("ebs.csi.aws.com/cluster", "true"),
            ("ebs.csi.aws.com/cluster-name", "prod"),
            ("kubernetes.io/cluster/prod", "owned"),
            ("kubernetes.io/created-for/pv/name", "pvc-1"),
            ("kubernetes.io/created-for/pvc/name", "data"),
            ("kubernetes.io/created-for/pvc/namespace", "shop"),
        ]
    );
}

#[test]
fn all_snapshot_tags_match_go_driver() {
    let settings = TagSettings { cluster_id: Some("prod".to_owned()), ..Default::default() };
    let tags = settings.of_snapshot("snapshot-1", &SnapshotParameters::default()).unwrap();
    assert_eq!(
        pairs(&tags),
        [
            ("CSIVolumeSnapshotName", "snapshot-1"),
            ("Name", "prod-dynamic-snapshot-1"),
            ("ebs.csi.aws.com/cluster", "true"),
            ("ebs.csi.aws.com/cluster-name", "prod"),
            ("kubernetes.io/cluster/prod", "owned"),
        ]
    );
}

#[test]
fn extra_tags_override_attributes_which_override_class() {
    let settings = TagSettings {
        cluster_id: Some("prod".to_owned()),
        extra: Tags::from([("c".to_owned(), "{{ .PVCName }}".to_owned())]),
        ..Default::default()
    };
    let attributes = VolumeAttributes {
        tags: vec!["b=vac".to_owned(), "c=vac".to_owned()],
        tag_deletions: vec!["gone".to_owned()],
        ..Default::default()
    };
    let class = class(&[
        "Name=mine",
        "a=sc",
        "b=sc",
        "c=sc",
        "gone=sc",
        "ns={{ .PVCNamespace }}",
        "empty=",
        "x=y=z",
    ]);
    let tags = settings.of_volume("pvc-1", &class, &attributes).unwrap();
    for (key, value) in [
        ("Name", "mine"),
        ("a", "sc"),
        ("b", "vac"),
        ("c", "data"),
        ("ns", "shop"),
        ("empty", ""),
        ("x", "y=z"),
    ] {
        assert_eq!(tags[key], value, "{key}");
    }
    assert!(!tags.contains_key("gone"));
}

#[test]
fn explicit_iops_removes_iops_per_gib_tag() {
    let class = VolumeParameters { iops_per_gib: Some(10), ..class(&[]) };
    let attributes = VolumeAttributes { iops: Some(4000), ..Default::default() };
    let tags = TagSettings::default().of_volume("n", &class, &attributes).unwrap();
    assert!(!tags.contains_key(IOPS_PER_GIB));
}

/// Text that is not key=value is refused even with `--warn-on-invalid-tag`.
#[test]
fn invalid_tag_is_skipped_only_under_warn_flag() {
    let strict = TagSettings::default();
    let lenient = TagSettings { warn_on_invalid: true, ..Default::default() };
    let rows = [
        ("kubernetes.io/x=1", true),
        ("ebs.csi.aws.com/cluster=false", true),
        ("CSIVolumeName=other", true),
        ("a={{ .Nope }}", true),
        ("no-equals-sign", false),
    ];
    for (tag, is_skipped) in rows {
        let class = class(&[tag]);
        let failure = strict.of_volume("n", &class, &VolumeAttributes::default()).unwrap_err();
        assert_eq!(failure.condition(), Condition::InvalidField, "{tag}");
        let lenient = lenient.of_volume("n", &class, &VolumeAttributes::default());
        assert_eq!(lenient.is_ok(), is_skipped, "{tag}");
        if let Ok(tags) = lenient {
            assert_eq!(tags["CSIVolumeName"], "n");
            assert_eq!(tags["ebs.csi.aws.com/cluster"], "true");
        }
    }
}

#[test]
fn extra_tags_are_read_as_go_reads_them() {
    let tags = TagSettings::parse_extra("a=1, b = x=y ,,a=2", false).unwrap();
    let expected = [("a", "2"), ("b", "x=y")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(tags, Tags::from(expected));
    // The template fails only for a claim without a name, and every claim has a name.
    let of_claim = "a={{ .PVCName | substring 4 8 }}";
    assert_eq!(TagSettings::parse_extra(of_claim, false).unwrap().len(), 1);
    for bad in ["a", "=1", " =1", "CSIVolumeName=1", "a={{ .PVCName", "a={{ range . }}"] {
        assert!(TagSettings::parse_extra(bad, false).is_err(), "{bad}");
    }
}

/// The flag `--warn-on-invalid-tag` must not end the process that it is to keep going.
#[test]
fn invalid_extra_tag_is_skipped_under_warn_flag() {
    for (text, kept) in [
        ("kubernetes.io/x=1,a=1", Some(1)),
        ("ebs.csi.aws.com/x=1", Some(0)),
        ("CSIVolumeName=1,a=1,b=2", Some(2)),
        ("a={{ .PVCName", Some(0)),
        ("b={{ range . }},c=1", Some(1)),
        ("no-equals-sign", None),
        ("=1", None),
    ] {
        let tags = TagSettings::parse_extra(text, true).ok();
        assert_eq!(tags.map(|tags| tags.len()), kept, "{text}");
    }
}

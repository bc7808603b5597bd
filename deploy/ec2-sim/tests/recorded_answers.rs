//! Codes, statuses and messages that were recorded from the real service, or published by those who
//! recorded them.

mod world;

use world::{NODE_A, NODE_B, World};

type Parameters<'a> = &'a [(&'a str, &'a str)];

const ZONE: (&str, &str) = ("AvailabilityZone", "us-east-1a");
const NOWHERE: &str = "vol-0123456789abcdef0";

#[test]
fn create_volume_errors_match_recorded_messages() {
    let mut w = World::new();
    let cases: &[(Parameters, &str, &str)] = &[
        (
            &[("Size", "1")],
            "MissingParameter",
            "The request must contain the parameter zone",
        ),
        (
            &[ZONE],
            "MissingParameter",
            "The request must contain the parameter size/snapshot",
        ),
        (
            &[("AvailabilityZone", "mars-1a"), ("Size", "1")],
            "InvalidZone.NotFound",
            "The zone 'mars-1a' does not exist.",
        ),
        (
            &[ZONE, ("Size", "4"), ("VolumeType", "io2")],
            "InvalidParameterCombination",
            "The parameter iops must be specified for io2 volumes.",
        ),
        (
            &[ZONE, ("Size", "4"), ("Iops", "100")],
            "InvalidParameterCombination",
            "The parameter iops is not supported for gp2 volumes.",
        ),
        (
            &[ZONE, ("Size", "4"), ("Throughput", "125")],
            "InvalidParameterCombination",
            "The throughput parameter is not supported for gp2 volumes.",
        ),
        (
            &[
                ZONE,
                ("Size", "4"),
                ("VolumeType", "gp3"),
                ("MultiAttachEnabled", "true"),
            ],
            "InvalidParameterCombination",
            "The parameter multi-attach-enabled is not supported for gp3 volumes.",
        ),
        (
            &[ZONE, ("Size", "4"), ("VolumeInitializationRate", "200")],
            "InvalidParameterCombination",
            "You can't specify VolumeInitializationRate for volumes that are not created from a snapshot.",
        ),
        (
            &[ZONE, ("Size", "4"), ("VolumeType", "bad")],
            "UnknownVolumeType",
            "Unsupported volume type 'bad' for volume creation. ",
        ),
        (
            &[ZONE, ("Size", "4"), ("VolumeType", "gp3"), ("Iops", "-1")],
            "InvalidParameterValue",
            "Value (-1) for parameter iops is invalid. Value must be a positive integer.",
        ),
        (
            &[
                ZONE,
                ("Size", "4"),
                ("VolumeType", "gp3"),
                ("Iops", "2147483647"),
                ("DryRun", "true"),
            ],
            "InvalidParameterValue",
            "Volume iops of 2147483647 is too high; maximum is 80000.",
        ),
        (
            &[
                ZONE,
                ("Size", "4"),
                ("TagSpecification.1.ResourceType", "snapshot"),
            ],
            "InvalidParameterValue",
            "'snapshot' is not a valid taggable resource type for this operation.",
        ),
        (
            &[
                ZONE,
                ("Size", "4"),
                ("TagSpecification.1.ResourceType", "volume"),
                ("TagSpecification.1.Tag.1.Value", "v"),
            ],
            "InvalidParameterValue",
            "Tag key must have a value",
        ),
        (
            &[
                ZONE,
                ("Size", "4"),
                (
                    "ClientToken",
                    "12345678901234567890123456789012345678901234567890123456789012345",
                ),
            ],
            "InvalidParameterValue",
            "Client token must be less than or equal to 64 characters.",
        ),
        (
            &[ZONE, ("SnapshotId", "snap-0123456789abcdef0")],
            "InvalidSnapshot.NotFound",
            "The snapshot 'snap-0123456789abcdef0' does not exist.",
        ),
    ];
    for (parameters, code, message) in cases {
        let expected = (400, (*code).to_owned(), (*message).to_owned());
        assert_eq!(
            w.error("CreateVolume", parameters),
            expected,
            "{parameters:?}"
        );
    }
    assert_eq!(
        w.sim.realm().volumes().values().filter(|v| !v.root).count(),
        0,
        "nothing was made"
    );
}

#[test]
fn dry_run_and_validation_order_matches_ec2() {
    let mut w = World::new();
    let v = w.volume(&[]);
    let dry = ("DryRun", "true");
    let cases: &[(&str, Parameters, u16, &str)] = &[
        // Describe calls answer the dry run first, even with malformed ids.
        (
            "DescribeVolumes",
            &[dry, ("VolumeId.1", "bad")],
            412,
            "DryRunOperation",
        ),
        ("DescribeAvailabilityZones", &[dry], 412, "DryRunOperation"),
        // CreateVolume validates the parameters first.
        (
            "CreateVolume",
            &[dry, ZONE, ("Size", "0")],
            400,
            "InvalidParameterValue",
        ),
        (
            "CreateVolume",
            &[dry, ZONE, ("Size", "1")],
            412,
            "DryRunOperation",
        ),
        // ModifyVolume answers the dry run first.
        (
            "ModifyVolume",
            &[dry, ("VolumeId", "bad")],
            412,
            "DryRunOperation",
        ),
        ("ModifyVolume", &[dry], 412, "DryRunOperation"),
        // DeleteVolume checks the id and the volume first.
        (
            "DeleteVolume",
            &[dry, ("VolumeId", "bad")],
            400,
            "InvalidParameterValue",
        ),
        (
            "DeleteVolume",
            &[dry, ("VolumeId", NOWHERE)],
            400,
            "InvalidVolume.NotFound",
        ),
        (
            "DeleteVolume",
            &[dry, ("VolumeId", &v)],
            412,
            "DryRunOperation",
        ),
    ];
    for (action, parameters, status, code) in cases {
        let (s, c, _) = w.error(action, parameters);
        assert_eq!((s, c.as_str()), (*status, *code), "{action} {parameters:?}");
    }
    assert_eq!(
        w.error("DescribeVolumes", &[dry]).2,
        "Request would have succeeded, but DryRun flag is set."
    );
}

#[test]
fn invalid_volume_calls_return_recorded_errors() {
    let mut w = World::new();
    let v = w.volume(&[]);
    let id = ("VolumeId", NOWHERE);
    let cases: &[(&str, Parameters, &str, &str)] = &[
        (
            "DeleteVolume",
            &[],
            "MissingParameter",
            "The request must include the VolumeId parameter. Add the required parameter and retry the request.",
        ),
        (
            "DeleteVolume",
            &[("VolumeId", "bad")],
            "InvalidParameterValue",
            "The volume ID 'bad' is malformed",
        ),
        (
            "DeleteVolume",
            &[id],
            "InvalidVolume.NotFound",
            "The volume 'vol-0123456789abcdef0' does not exist.",
        ),
        (
            "DescribeVolumes",
            &[("VolumeId.1", "bad")],
            "InvalidParameterValue",
            "Value (bad) for parameter volumes is invalid. Expected: 'vol-...'.",
        ),
        (
            "DescribeVolumes",
            &[("VolumeId.1", "vol-00000000000000000")],
            "InvalidParameterValue",
            "Value (vol-00000000000000000) for parameter volumes is invalid. Expected: 'vol-...'.",
        ),
        (
            "DescribeVolumes",
            &[("VolumeId.1", &v), ("VolumeId.2", NOWHERE)],
            "InvalidVolume.NotFound",
            "The volume 'vol-0123456789abcdef0' does not exist.",
        ),
        (
            "DescribeVolumes",
            &[("VolumeId.1", &v), ("MaxResults", "5")],
            "InvalidParameterCombination",
            "The parameter volumeIdsSet cannot be used with the parameter maxResults",
        ),
        (
            "DescribeVolumes",
            &[("Filter.1.Name", "bad-filter"), ("Filter.1.Value.1", "x")],
            "InvalidParameterValue",
            "The filter 'bad-filter' is invalid",
        ),
        (
            "DescribeVolumeStatus",
            &[("VolumeId.1", "bad")],
            "InvalidVolumeID.Malformed",
            "Invalid id: \"bad\" (expecting \"vol-...\")",
        ),
        (
            "ModifyVolume",
            &[("VolumeId", "vol-bad"), ("Size", "9")],
            "InvalidVolumeID.Malformed",
            "Value ( vol-bad ) for parameter VOLUME is invalid. ",
        ),
        (
            "ModifyVolume",
            &[("VolumeId", &v)],
            "InvalidParameterValue",
            "Invalid input: Must specify at least one of size, type, iops, throughput or multi-attach.",
        ),
        (
            "ModifyVolume",
            &[("VolumeId", &v), ("Size", "3")],
            "InvalidParameterValue",
            "New size cannot be smaller than existing size",
        ),
        (
            "DescribeVolumesModifications",
            &[("VolumeId.1", &v)],
            "InvalidVolumeModification.NotFound",
            &format!("Modification for volume '{v}' does not exist."),
        ),
        (
            "DescribeVolumesModifications",
            &[
                ("Filter.1.Name", "targetMultiAttachEnabled"),
                ("Filter.1.Value.1", "x"),
            ],
            "InvalidParameterValue",
            "The filter 'targetMultiAttachEnabled' is invalid",
        ),
        (
            "CreateTags",
            &[("ResourceId.1", "vol-1"), ("Tag.1.Key", "k")],
            "InvalidID",
            "The ID 'vol-1' is not valid",
        ),
    ];
    for (action, parameters, code, message) in cases {
        let expected = (400, (*code).to_owned(), (*message).to_owned());
        assert_eq!(
            w.error(action, parameters),
            expected,
            "{action} {parameters:?}"
        );
    }
}

#[test]
fn attach_and_detach_errors_match_recorded_messages() {
    let mut w = World::new();
    let v = w.volume(&[]);
    let other = w.volume(&[]);
    fn attach<'a>(volume: &'a str, instance: &'a str, device: &'a str) -> [(&'a str, &'a str); 3] {
        [
            ("VolumeId", volume),
            ("InstanceId", instance),
            ("Device", device),
        ]
    }
    assert_eq!(
        w.error("DetachVolume", &[("VolumeId", &v)]).2,
        format!("Volume '{v}' is in the 'available' state.")
    );
    w.ok("AttachVolume", &attach(&v, NODE_A, "/dev/xvdb"));
    w.step(1);
    for (parameters, code, message) in [
        (attach(&v, NODE_A, "/dev/xvdc"), "VolumeInUse", format!("{v} is already attached to an instance")),
        (attach(&other, NODE_A, "/dev/sdb"), "InvalidParameterValue", "Invalid value '/dev/sdb' for unixDevice. Attachment point /dev/sdb is already in use".to_owned()),
        (attach(&other, NODE_A, "/dev/xvda"), "InvalidParameterValue", "Invalid value '/dev/xvda' for unixDevice. Attachment point /dev/xvda is already in use".to_owned()),
        (attach(&other, NODE_A, "/dev/sdk1"), "InvalidParameterValue", "Value (/dev/sdk1) for parameter device is invalid. /dev/sdk1 is not a valid EBS device name.".to_owned()),
        (attach(&other, NODE_B, "/dev/xvdb"), "InvalidVolume.ZoneMismatch", format!("The volume '{other}' is not in the same availability zone as instance '{NODE_B}'")),
        (attach(&other, "i-0123456789abcdef0", "/dev/xvdb"), "InvalidInstanceID.NotFound", "The instance ID 'i-0123456789abcdef0' does not exist".to_owned()),
    ] {
        assert_eq!(w.error("AttachVolume", &parameters), (400, code.to_owned(), message), "{parameters:?}");
    }
    assert_eq!(
        w.error("DeleteVolume", &[("VolumeId", &v)]),
        (
            400,
            "VolumeInUse".to_owned(),
            format!("Volume {v} is currently attached to {NODE_A}")
        )
    );
    assert_eq!(
        w.code("DetachVolume", &[("VolumeId", &v), ("InstanceId", NODE_B)]),
        "InvalidAttachment.NotFound"
    );
    let root = w
        .sim
        .realm()
        .volumes()
        .values()
        .find(|v| v.root)
        .expect("root")
        .id
        .clone();
    assert_eq!(
        w.code("DetachVolume", &[("VolumeId", &root)]),
        "OperationNotPermitted"
    );
}

#[test]
fn attachment_limit_counts_root_volume() {
    let mut w = World::new();
    // m5.large: 27, of which the root volume takes one.
    for i in 0..27 {
        let v = w.volume(&[]);
        let device = format!(
            "/dev/xvd{}{}",
            char::from(b'b' + i / 26),
            char::from(b'a' + i % 26)
        );
        let parameters = [
            ("VolumeId", v.as_str()),
            ("InstanceId", NODE_A),
            ("Device", device.as_str()),
        ];
        if i < 26 {
            w.ok("AttachVolume", &parameters);
        } else {
            let (status, code, message) = w.error("AttachVolume", &parameters);
            assert_eq!((status, code.as_str()), (400, "AttachmentLimitExceeded"));
            assert!(
                message.starts_with("You may attach up to 27 devices for this instance type."),
                "{message}"
            );
        }
    }
    assert!(
        w.sim.invariants.found().is_empty(),
        "{:?}",
        w.sim.invariants.found()
    );
}

/// A modification is refused until the previous one completes; the new size is in force once
/// optimizing begins.
#[test]
fn modifications_are_serial_and_limited_to_4_daily() {
    let mut scenario = ec2_sim::Scenario {
        profile: "instant".to_owned(),
        ..ec2_sim::Scenario::default()
    };
    scenario.latency =
        serde_json::from_str(r#"{"modify":{"fixed_ms":10},"modify_complete":{"fixed_ms":10}}"#)
            .expect("latency");
    let mut w = World::of(scenario);
    let v = w.volume(&[]);
    for size in ["5", "6", "7", "7"] {
        w.ok("ModifyVolume", &[("VolumeId", &v), ("Size", size)]);
        assert_eq!(
            w.error("ModifyVolume", &[("VolumeId", &v), ("Size", "9")]),
            (
                400,
                "IncorrectModificationState".to_owned(),
                format!("Volume {v} cannot be modified in modification state MODIFYING")
            )
        );
        w.step(10);
        assert_eq!(
            w.of_volume(&v, "size"),
            size,
            "the new size is in force at optimizing"
        );
        assert!(
            w.error("ModifyVolume", &[("VolumeId", &v), ("Size", "9")])
                .2
                .ends_with("OPTIMIZING")
        );
        w.step(10);
    }
    let (_, code, message) = w.error("ModifyVolume", &[("VolumeId", &v), ("Size", "9")]);
    assert_eq!(code, "VolumeModificationRateExceeded");
    assert!(message.starts_with("You've reached the maximum modification rate per volume limit. Wait until 2026-01-02T00:00:00."), "{message}");
    w.step(24 * 3_600_000);
    w.ok("ModifyVolume", &[("VolumeId", &v), ("Size", "9")]);
}

#[test]
fn snapshots_too_close_together_are_refused_as_recorded() {
    let mut scenario = ec2_sim::Scenario {
        profile: "instant".to_owned(),
        ..ec2_sim::Scenario::default()
    };
    scenario.quotas.snapshot_interval_ms = Some(15_000);
    let mut w = World::of(scenario);
    let v = w.volume(&[]);
    w.ok("CreateSnapshot", &[("VolumeId", &v)]);
    w.step(14_999);
    assert_eq!(
        w.error("CreateSnapshot", &[("VolumeId", &v)]),
        (400, "SnapshotCreationPerVolumeRateExceeded".to_owned(), "The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable sleep interval between requests.".to_owned())
    );
    w.step(1);
    w.ok("CreateSnapshot", &[("VolumeId", &v)]);
}

#[test]
fn unknown_action_parameter_and_unsigned_request_are_refused() {
    let mut w = World::new();
    assert_eq!(
        w.error("RunInstances", &[]),
        (
            400,
            "InvalidAction".to_owned(),
            "The action RunInstances is not valid for this web service.".to_owned()
        )
    );
    for action in ec2_sim::actions::names() {
        let (_, code, message) = w.error(
            action,
            &[
                ("VolumeId", NOWHERE),
                ("SourceVolumeId", NOWHERE),
                ("SnapshotId", "snap-0123456789abcdef0"),
                ("InstanceId", NODE_A),
                ("Device", "/dev/xvdb"),
                ("LockMode", "governance"),
                ("LockDuration", "1"),
                ("Nonsense", "1"),
            ],
        );
        // Each action knows some of these parameters, but none knows `Nonsense`.
        assert_eq!(code, "UnknownParameter", "{action}: {message}");
    }
    let unsigned = ec2_sim::Request {
        form: b"Action=DescribeVolumes&Version=2016-11-15".to_vec(),
        ..ec2_sim::Request::default()
    };
    assert_eq!(w.sim.handle(w.now, &unsigned).status, 401);
    let elsewhere = world::request("AKID", "mars-1", "DescribeVolumes", &[]);
    assert_eq!(w.sim.handle(w.now, &elsewhere).status, 401);
    let empty = ec2_sim::Request::default();
    assert_eq!(w.sim.handle(w.now, &empty).status, 400);
}

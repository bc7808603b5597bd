//! Codes, statuses and messages that were recorded from the real service, or published by those who
//! recorded them.

mod world;

use serde_json::json;
use world::{NODE_A, NODE_B, World, attach, rows, text};

const NOWHERE: &str = "vol-0123456789abcdef0";

/// Parameters, code, message.
const CREATE_VOLUME: &str = "
Size=1 | MissingParameter | The request must contain the parameter zone|
ZONE | MissingParameter | The request must contain the parameter size/snapshot|
AvailabilityZone=mars-1a&Size=1 | InvalidZone.NotFound | The zone 'mars-1a' does not exist.|
ZONE&Size=4&VolumeType=io2 | InvalidParameterCombination | The parameter iops must be specified for io2 volumes.|
ZONE&Size=4&Iops=100 | InvalidParameterCombination | The parameter iops is not supported for gp2 volumes.|
ZONE&Size=4&Throughput=125 | InvalidParameterCombination | The throughput parameter is not supported for gp2 volumes.|
ZONE&Size=4&VolumeType=io2&Iops=100&Throughput=125 | InvalidParameterCombination | The throughput parameter is not supported for io2 volumes.|
ZONE&Size=4&VolumeType=gp3&MultiAttachEnabled=true | InvalidParameterCombination | The parameter multi-attach-enabled is not supported for gp3 volumes.|
ZONE&Size=4&VolumeInitializationRate=200 | InvalidParameterCombination | You can't specify VolumeInitializationRate for volumes that are not created from a snapshot.|
ZONE&Size=4&VolumeType=bad | UnknownVolumeType | Unsupported volume type 'bad' for volume creation. |
ZONE&Size=ten&VolumeType=gp3 | InvalidParameterValue | Value (ten) for parameter size is invalid. Expected an integer.|
ZONE&Size=4&VolumeType=gp3&Iops=-1 | InvalidParameterValue | Value (-1) for parameter iops is invalid. Value must be a positive integer.|
ZONE&Size=4&VolumeType=gp3&Iops=2147483647&DryRun=true | InvalidParameterValue | Volume iops of 2147483647 is too high; maximum is 80000.|
ZONE&Size=500&VolumeType=gp3&Iops=80001 | InvalidParameterValue | Volume iops of 80001 is too high; maximum is 80000.|
ZONE&Size=1&VolumeType=gp3&Iops=99 | InvalidParameterValue | Volume iops of 99 is too low; minimum is 100.|
ZONE&Size=1&VolumeType=gp3&Iops=501 | InvalidParameterValue | Iops to volume size ratio of 501.000000 is too high; maximum is 500|
ZONE&Size=10&VolumeType=gp3&Throughput=751 | InvalidParameterValue | Throughput (MiBps) to iops ratio of 0.250333 is too high; maximum is 0.250000 MiBps per iops|
ZONE&Size=65537&VolumeType=gp3 | InvalidParameterValue | Volume of 65537GiB is too large for volume type gp3; maximum is 65536GiB|
ZONE&Size=1&VolumeType=io1&Iops=100 | InvalidParameterValue | The volume size is invalid for io1 volumes: 1 GiB. io1 volumes must be at least 4 GiB in size. Please specify a volume size above the minimum limit.|
ZONE&Size=4&TagSpecification.1.ResourceType=snapshot | InvalidParameterValue | 'snapshot' is not a valid taggable resource type for this operation.|
ZONE&Size=4&TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Value=v | InvalidParameterValue | Tag key must have a value|
ZONE&Size=4&ClientToken=12345678901234567890123456789012345678901234567890123456789012345 | InvalidParameterValue | Client token must be less than or equal to 64 characters.|
ZONE&SnapshotId=snap-0123456789abcdef0 | InvalidSnapshot.NotFound | The snapshot 'snap-0123456789abcdef0' does not exist.|
";

#[test]
fn create_volume_errors_match_recorded_messages() {
    let mut w = World::new();
    for [parameters, code, message] in rows(CREATE_VOLUME) {
        let parameters = parameters.replace("ZONE", "AvailabilityZone=us-east-1a");
        w.refused_as("CreateVolume", &parameters, code, message);
    }
    assert_eq!(w.volumes(), 0, "nothing was made");
}

/// Parameters, iops, throughput.
const PERFORMANCE: &str = "
Size=1&VolumeType=gp3 | 3000 | 125|
Size=1&VolumeType=GP3 | 3000 | 125|
Size=1&VolumeType=gp2 | 100 | |
Size=1&VolumeType=standard |  | |
Size=1&VolumeType=gp3&Iops=500 | 3000 | 125|
Size=1&VolumeType=gp3&Iops=3000 | 3000 | 125|
Size=10&VolumeType=gp3&Throughput=1 | 3000 | 125|
Size=4&VolumeType=io2&Iops=4000 | 4000 | |
";

#[test]
fn accepted_performance_matches_recorded_answers() {
    let mut w = World::new();
    for [parameters, iops, throughput] in rows(PERFORMANCE) {
        let parameters = format!("AvailabilityZone=us-east-1a&{parameters}");
        let made = w.ok("CreateVolume", &parameters);
        let shown = (text(&made, "iops"), text(&made, "throughput"));
        let expected = (iops.to_owned(), throughput.to_owned());
        assert_eq!(shown, expected, "{parameters}");
    }
}

/// A new volume, its modification, the size, iops and throughput afterwards. The same type keeps
/// its values; a change from gp2 to gp3 gives at least the previous performance.
const MODIFICATIONS: &str = "
Size=10&VolumeType=gp3&Iops=4000&Throughput=300 | Size=20 | 20 | 4000 | 300|
Size=10&VolumeType=gp3&Iops=4000&Throughput=300 | Iops=5000 | 10 | 5000 | 300|
Size=10&VolumeType=gp3&Iops=4000&Throughput=300 | VolumeType=io2 | 10 | 3000 | |
Size=2000&VolumeType=gp2 | Size=3000 | 3000 | 9000 | |
Size=2000&VolumeType=gp2 | VolumeType=gp3 | 2000 | 6000 | 250|
Size=10&VolumeType=io2&Iops=5000 | Size=20 | 20 | 5000 | |
";

#[test]
fn modification_keeps_or_derives_omitted_values() {
    let mut w = World::new();
    for [volume, change, size, iops, throughput] in rows(MODIFICATIONS) {
        let v = w.volume(volume);
        w.ok("ModifyVolume", &format!("VolumeId={v}&{change}"));
        w.step(1);
        let shown = ["size", "iops", "throughput"].map(|element| w.of_volume(&v, element));
        assert_eq!(shown, [size, iops, throughput], "{volume} {change}");
    }
}

/// Action, parameters, status and code, in the order in which EC2 checks.
const ORDER: &str = "
DescribeVolumes | VolumeId.1=bad | 412 DryRunOperation|
DescribeAvailabilityZones |  | 412 DryRunOperation|
CreateVolume | AvailabilityZone=us-east-1a&Size=0 | 400 InvalidParameterValue|
CreateVolume | AvailabilityZone=us-east-1a&Size=1 | 412 DryRunOperation|
ModifyVolume | VolumeId=bad | 412 DryRunOperation|
ModifyVolume |  | 412 DryRunOperation|
DeleteVolume | VolumeId=bad | 400 InvalidParameterValue|
DeleteVolume | VolumeId=NOWHERE | 400 InvalidVolume.NotFound|
DeleteVolume | VolumeId=VOLUME | 412 DryRunOperation|
";

#[test]
fn dry_run_and_validation_order_matches_ec2() {
    let mut w = World::new();
    let v = w.volume("");
    for [action, parameters, expected] in rows(ORDER) {
        let parameters = parameters.replace("NOWHERE", NOWHERE).replace("VOLUME", &v);
        let (status, code, _) = w.error(action, &format!("DryRun=true&{parameters}"));
        assert_eq!(format!("{status} {code}"), expected, "{action} {parameters}");
    }
    assert_eq!(
        w.error("DescribeVolumes", "DryRun=true").2,
        "Request would have succeeded, but DryRun flag is set."
    );
}

/// Action, parameters, code, message.
const INVALID_CALLS: &str = "
DeleteVolume |  | MissingParameter | The request must include the VolumeId parameter. Add the required parameter and retry the request.|
DeleteVolume | VolumeId=VOLUME&Nonsense=1 | UnknownParameter | The parameter Nonsense is not recognized|
DeleteVolume | VolumeId=bad | InvalidParameterValue | The volume ID 'bad' is malformed|
DeleteVolume | VolumeId=NOWHERE | InvalidVolume.NotFound | The volume 'NOWHERE' does not exist.|
DescribeVolumes | VolumeId.1=bad | InvalidParameterValue | Value (bad) for parameter volumes is invalid. Expected: 'vol-...'.|
DescribeVolumes | VolumeId.1=vol-00000000000000000 | InvalidParameterValue | Value (vol-00000000000000000) for parameter volumes is invalid. Expected: 'vol-...'.|
DescribeVolumes | VolumeId.1=VOLUME&VolumeId.2=NOWHERE | InvalidVolume.NotFound | The volume 'NOWHERE' does not exist.|
DescribeVolumes | VolumeId.1=VOLUME&MaxResults=5 | InvalidParameterCombination | The parameter volumeIdsSet cannot be used with the parameter maxResults|
DescribeVolumes | MaxResults=1 | InvalidParameterValue | Value ( 1 ) for parameter maxResults is invalid. Expecting a value greater than 5.|
DescribeVolumes | NextToken=zz | InvalidParameterValue | Unable to parse pagination token|
DescribeVolumes | Filter.1.Name=bad-filter&Filter.1.Value.1=x | InvalidParameterValue | The filter 'bad-filter' is invalid|
DescribeVolumeStatus | VolumeId.1=bad | InvalidVolumeID.Malformed | Invalid id: \"bad\" (expecting \"vol-...\")|
ModifyVolume | VolumeId=vol-bad&Size=9 | InvalidVolumeID.Malformed | Value ( vol-bad ) for parameter VOLUME is invalid. |
ModifyVolume | VolumeId=VOLUME | InvalidParameterValue | Invalid input: Must specify at least one of size, type, iops, throughput or multi-attach.|
ModifyVolume | VolumeId=VOLUME&Size=3 | InvalidParameterValue | New size cannot be smaller than existing size|
DescribeVolumesModifications | VolumeId.1=VOLUME | InvalidVolumeModification.NotFound | Modification for volume 'VOLUME' does not exist.|
CreateTags | ResourceId.1=vol-1&Tag.1.Key=k | InvalidID | The ID 'vol-1' is not valid|
";

#[test]
fn invalid_volume_calls_return_recorded_errors() {
    let mut w = World::new();
    let v = w.volume("");
    let fill = |text: &str| {
        let text = text.replace("NOWHERE", NOWHERE).replace("=VOLUME", &format!("={v}"));
        text.replace("'VOLUME'", &format!("'{v}'"))
    };
    for [action, parameters, code, message] in rows(INVALID_CALLS) {
        w.refused_as(action, &fill(parameters), code, &fill(message));
    }
}

#[test]
fn attach_and_detach_errors_match_recorded_messages() {
    let mut w = World::new();
    let (v, other) = (w.volume(""), w.volume(""));
    let of_v = format!("VolumeId={v}");
    let available = format!("Volume '{v}' is in the 'available' state.");
    w.refused_as("DetachVolume", &of_v, "IncorrectState", &available);
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
        w.refused_as("AttachVolume", &parameters, code, &message);
    }
    let in_use = format!("Volume {v} is currently attached to {NODE_A}");
    w.refused_as("DeleteVolume", &of_v, "VolumeInUse", &in_use);
    let elsewhere = format!("VolumeId={v}&InstanceId={NODE_B}");
    w.refused("DetachVolume", &elsewhere, "InvalidAttachment.NotFound");
    let of_root = format!("VolumeId={}", w.root(NODE_A));
    w.refused("DetachVolume", &of_root, "OperationNotPermitted");
}

#[test]
fn attachment_limit_counts_root_volume() {
    let mut w = World::new();
    // m5.large: 27, of which the root volume takes one.
    for i in 0..27 {
        let v = w.volume("");
        let device = format!("/dev/xvd{}{}", char::from(b'b' + i / 26), char::from(b'a' + i % 26));
        let parameters = attach(&v, NODE_A, &device);
        if i < 26 {
            w.ok("AttachVolume", &parameters);
        } else {
            let (status, code, message) = w.error("AttachVolume", &parameters);
            assert_eq!((status, code.as_str()), (400, "AttachmentLimitExceeded"));
            let start = "You may attach up to 27 devices for this instance type.";
            assert!(message.starts_with(start), "{message}");
        }
    }
    w.check_invariants();
}

#[test]
fn modifications_are_serial_and_limited_to_4_daily() {
    let latency = json!({"modify": {"fixed_ms": 10}, "modify_complete": {"fixed_ms": 10}});
    let mut w = World::with(json!({"latency": latency}));
    let v = w.volume("");
    let to_9 = format!("VolumeId={v}&Size=9");
    let modifying = format!("Volume {v} cannot be modified in modification state MODIFYING");
    for size in ["5", "6", "7", "7"] {
        w.ok("ModifyVolume", &format!("VolumeId={v}&Size={size}"));
        w.refused_as("ModifyVolume", &to_9, "IncorrectModificationState", &modifying);
        w.step(10);
        assert_eq!(w.of_volume(&v, "size"), size, "the new size is in force at optimizing");
        assert!(w.error("ModifyVolume", &to_9).2.ends_with("OPTIMIZING"));
        w.step(10);
    }
    let (_, code, message) = w.error("ModifyVolume", &to_9);
    assert_eq!(code, "VolumeModificationRateExceeded");
    assert!(message.starts_with("You've reached the maximum modification rate per volume limit. Wait until 2026-01-02T00:00:00."), "{message}");
    w.step(24 * 3_600_000);
    w.ok("ModifyVolume", &to_9);
}

#[test]
fn snapshots_too_close_together_are_refused_as_recorded() {
    let mut w = World::with(json!({"quotas": {"snapshot_interval_ms": 15_000}}));
    let of_v = format!("VolumeId={}", w.volume(""));
    w.ok("CreateSnapshot", &of_v);
    w.step(14_999);
    let message = "The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable sleep interval between requests.";
    w.refused_as("CreateSnapshot", &of_v, "SnapshotCreationPerVolumeRateExceeded", message);
    w.step(1);
    w.ok("CreateSnapshot", &of_v);
}

#[test]
fn unknown_action_parameter_and_unsigned_request_are_refused() {
    let mut w = World::new();
    let message = "The action RunInstances is not valid for this web service.";
    w.refused_as("RunInstances", "", "InvalidAction", message);
    // Each action knows some of these parameters, but none knows `Nonsense`.
    let parameters = format!(
        "VolumeId={NOWHERE}&SourceVolumeId={NOWHERE}&SnapshotId=snap-0123456789abcdef0&\
         InstanceId={NODE_A}&InstanceSpecification.InstanceId={NODE_A}&Device=/dev/xvdb&LockMode=governance&LockDuration=1&Nonsense=1"
    );
    for (action, _) in ec2_sim::examples() {
        w.refused(action, &parameters, "UnknownParameter");
    }
    let unsigned = ec2_sim::Request {
        form: b"Action=DescribeVolumes&Version=2016-11-15".to_vec(),
        ..ec2_sim::Request::default()
    };
    assert_eq!(w.sim.handle(w.now, &unsigned).status, 401);
    let elsewhere = world::request("AKID", "mars-1", "DescribeVolumes", "");
    let refused = w.sim.handle(w.now, &elsewhere);
    assert_eq!(refused.status, 401);
    let body = String::from_utf8_lossy(&refused.body).into_owned();
    assert_eq!(text(&body, "Code"), "AuthFailure");
    assert!(body.contains("account 111122223333 has no such region"));
    assert_eq!(w.sim.handle(w.now, &ec2_sim::Request::default()).status, 400);
}

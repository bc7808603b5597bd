"""Calls every action through boto3, good and bad. Arguments: the EC2 endpoint, the control socket, each EC2 action as
NAME?EXAMPLE."""

import base64
import datetime
import http.client
import json
import socket
import sys
import time

from botocore import xform_name
from botocore.exceptions import ClientError
from strict import CALLED, client

NODE_A, NODE_B = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"
ENDPOINT, SOCKET, *ACTIONS = sys.argv[1:]
ACTIONS = dict(action.split("?", 1) for action in ACTIONS)
ec2 = client("ec2", ENDPOINT)
sts = client("sts", ENDPOINT)


class Control(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("sim")

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(SOCKET)


def control(method, path, body=None):
    connection = Control()
    connection.request(method, path, json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    value = json.loads(answer.read())
    assert answer.status == 200, (method, path, value)
    return value


def refused(code, status, call, **parameters):
    try:
        call(**parameters)
    except ClientError as e:
        got = (e.response["Error"]["Code"], e.response["ResponseMetadata"]["HTTPStatusCode"])
        assert got == (code, status), (got, e.response["Error"]["Message"])
        assert e.response["ResponseMetadata"].get("RequestId") or e.response.get("RequestId"), e.response
        return e.response["Error"]["Message"]
    raise AssertionError(f"{code} was expected for {parameters}")


def until(what, call):
    for _ in range(500):
        value = call()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"never: {what}")


def volume(vid):
    return ec2.describe_volumes(VolumeIds=[vid])["Volumes"][0]


def is_(vid, state):
    return until(f"{vid} {state}", lambda: volume(vid)["State"] == state and volume(vid))


def tags(kind, **pairs):
    return [{"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in pairs.items()]}]


def make(**more):
    parameters = {"AvailabilityZone": "us-east-1a", "Size": 4, "VolumeType": "gp3", **more}
    made = ec2.create_volume(**parameters)
    is_(made["VolumeId"], "available")
    return made["VolumeId"]


def zones():
    shown = ec2.describe_availability_zones()["AvailabilityZones"]
    assert [(z["ZoneName"], z["ZoneId"], z["State"]) for z in shown] == [
        ("us-east-1a", "use1-az6", "available"),
        ("us-east-1b", "use1-az1", "available"),
    ], shown
    refused("DryRunOperation", 412, ec2.describe_availability_zones, DryRun=True)


def volumes():
    token, KEY = "0" * 64, "arn:aws:kms:us-east-1:111122223333:key/of-alias-x"
    asked = dict(AvailabilityZone="us-east-1a", Size=10, VolumeType="gp3", Iops=4000, Throughput=200, Encrypted=True,
                 KmsKeyId="alias/x", ClientToken=token, TagSpecifications=tags("volume", a="1", b=""))
    made = ec2.create_volume(**asked)
    vid = made["VolumeId"]
    assert made["State"] == "creating" and made["SnapshotId"] == "" and "Attachments" not in made, made
    assert ec2.create_volume(**asked)["VolumeId"] == vid
    refused("IdempotentParameterMismatch", 400, ec2.create_volume, **{**asked, "Size": 11})
    v = is_(vid, "available")
    assert (v["Size"], v["Iops"], v["Throughput"], v["Encrypted"], v["KmsKeyId"]) == (10, 4000, 200, True, KEY), v
    assert v["Attachments"] == [] and v["AvailabilityZoneId"] == "use1-az6", v
    assert {t["Key"]: t["Value"] for t in v["Tags"]} == {"a": "1", "b": ""}
    for name, value, found in [("tag:a", "1", 1), ("tag:a", "2", 0), ("tag-key", "a*", 1), ("tag-key", "c?", 0)]:
        shown = ec2.describe_volumes(Filters=[{"Name": name, "Values": [value]}, {"Name": "volume-id", "Values": [vid]}])["Volumes"]
        assert len(shown) == found, (name, value, shown)
    refused("InvalidVolume.NotFound", 400, ec2.describe_volumes, VolumeIds=[vid, "vol-0123456789abcdef0"])
    refused("InvalidParameterValue", 400, ec2.describe_volumes, Filters=[{"Name": "nonsense", "Values": ["x"]}])
    refused("DryRunOperation", 412, ec2.create_volume, AvailabilityZone="us-east-1a", Size=1, DryRun=True)
    refused("InvalidParameterValue", 400, ec2.create_volume, AvailabilityZone="us-east-1a", Size=4, VolumeType="gp3", Iops=2147483647, DryRun=True)
    refused("UnknownVolumeType", 400, ec2.create_volume, AvailabilityZone="us-east-1a", Size=4, VolumeType="gp9")
    several = {make() for _ in range(11)}
    pages = list(ec2.get_paginator("describe_volumes").paginate(PaginationConfig={"PageSize": 5}))
    shown = [v["VolumeId"] for page in pages for v in page["Volumes"]]
    assert len(pages) >= 3 and len(shown) == len(set(shown)) and several | {vid} <= set(shown), shown
    refused("InvalidParameterValue", 400, ec2.describe_volumes, MaxResults=1)
    refused("InvalidParameterValue", 400, ec2.describe_volumes, MaxResults=5, NextToken="nonsense")
    for extra in several:
        ec2.delete_volume(VolumeId=extra)
    refused("InvalidVolume.NotFound", 400, ec2.delete_volume, VolumeId=several.pop())
    return vid


def attachments(vid):
    said = ec2.attach_volume(VolumeId=vid, InstanceId=NODE_A, Device="/dev/xvdba")
    assert (said["State"], said["Device"], said["InstanceId"]) == ("attaching", "/dev/xvdba", NODE_A), said
    assert volume(vid)["State"] == "in-use"
    until("attached", lambda: volume(vid)["Attachments"][0]["State"] == "attached")
    shown = ec2.describe_instances(InstanceIds=[NODE_A])["Reservations"][0]["Instances"][0]
    mapping = {m["DeviceName"]: m["Ebs"]["VolumeId"] for m in shown["BlockDeviceMappings"]}
    assert mapping["/dev/xvdba"] == vid and "/dev/xvda" in mapping, mapping
    assert shown["State"] == {"Code": 16, "Name": "running"} and shown["Placement"]["AvailabilityZone"] == "us-east-1a"
    assert shown["InstanceType"] == "m5.large"
    refused("VolumeInUse", 400, ec2.delete_volume, VolumeId=vid)
    refused("VolumeInUse", 400, ec2.attach_volume, VolumeId=vid, InstanceId=NODE_A, Device="/dev/xvdbb")
    refused("InvalidVolume.ZoneMismatch", 400, ec2.attach_volume, VolumeId=vid, InstanceId=NODE_B, Device="/dev/xvdbb")
    refused("InvalidInstanceID.NotFound", 400, ec2.attach_volume, VolumeId=vid, InstanceId="i-0123456789abcdef0", Device="/dev/xvdbb")
    refused("InvalidAttachment.NotFound", 400, ec2.detach_volume, VolumeId=vid, InstanceId=NODE_B)
    said = ec2.detach_volume(VolumeId=vid, InstanceId=NODE_A)
    assert said["State"] == "detaching", said
    assert is_(vid, "available")["Attachments"] == []
    refused("IncorrectState", 400, ec2.detach_volume, VolumeId=vid, InstanceId=NODE_A)


def modifications(vid):
    refused("InvalidVolumeModification.NotFound", 400, ec2.describe_volumes_modifications, VolumeIds=[vid])
    said = ec2.modify_volume(VolumeId=vid, Size=16, Iops=4500)["VolumeModification"]
    assert (said["ModificationState"], said["OriginalSize"], said["TargetSize"], said["TargetIops"], said["Progress"]) == ("modifying", 10, 16, 4500, 0), said
    refused("IncorrectModificationState", 400, ec2.modify_volume, VolumeId=vid, Size=17)
    done = lambda: ec2.describe_volumes_modifications(VolumeIds=[vid])["VolumesModifications"][0]
    until("completed", lambda: done()["ModificationState"] == "completed")
    assert done()["Progress"] == 100 and done()["EndTime"] >= done()["StartTime"]
    assert volume(vid)["Size"] == 16
    found = ec2.describe_volumes_modifications(Filters=[{"Name": "volume-id", "Values": [vid]}])
    assert len(found["VolumesModifications"]) == 1
    refused("InvalidParameterValue", 400, ec2.modify_volume, VolumeId=vid, Size=15)
    refused("DryRunOperation", 412, ec2.modify_volume, VolumeId="bad", DryRun=True)


def snapshots(vid):
    said = ec2.create_snapshot(VolumeId=vid, Description="d", TagSpecifications=tags("snapshot", s="1"))
    sid = said["SnapshotId"]
    assert said["State"] == "pending" and said["VolumeSize"] == 16 and said["Progress"] == "", said
    shown = lambda: ec2.describe_snapshots(SnapshotIds=[sid], OwnerIds=["self"])["Snapshots"][0]
    until("completed", lambda: shown()["State"] == "completed")
    assert shown()["Progress"] == "100%" and shown()["Encrypted"] is True
    assert len(ec2.describe_snapshots(OwnerIds=["self"], Filters=[{"Name": "tag:s", "Values": ["1"]}])["Snapshots"]) == 1
    assert ec2.describe_snapshots(OwnerIds=["amazon"])["Snapshots"] == []
    others = [ec2.create_snapshot(VolumeId=vid)["SnapshotId"] for _ in range(5)]
    pages = list(ec2.get_paginator("describe_snapshots").paginate(OwnerIds=["self"], PaginationConfig={"PageSize": 5}))
    assert len([s for page in pages for s in page["Snapshots"]]) == 6 and len(pages) == 2
    for other in others:
        ec2.delete_snapshot(SnapshotId=other)
    refused("InvalidSnapshot.NotFound", 400, ec2.delete_snapshot, SnapshotId=others[0])
    refused("InvalidSnapshot.NotFound", 400, ec2.describe_snapshots, SnapshotIds=[sid, others[0]])

    said = ec2.enable_fast_snapshot_restores(AvailabilityZones=["us-east-1a", "mars-1a"], SourceSnapshotIds=[sid])
    assert [i["AvailabilityZone"] for i in said["Successful"]] == ["us-east-1a"], said
    assert said["Unsuccessful"][0]["FastSnapshotRestoreStateErrors"][0]["Error"]["Code"] == "InvalidZone.NotFound", said
    state = lambda: ec2.describe_fast_snapshot_restores(Filters=[{"Name": "snapshot-id", "Values": [sid]}])["FastSnapshotRestores"][0]["State"]
    until("enabled", lambda: state() == "enabled")
    made = ec2.create_volume(AvailabilityZone="us-east-1a", SnapshotId=sid, VolumeType="gp3", Size=1)
    assert made["Size"] == 16 and made["SnapshotId"] == sid, made
    is_(made["VolumeId"], "available")
    status = ec2.describe_volume_status(VolumeIds=[made["VolumeId"]])["VolumeStatuses"][0]
    assert "InitializationStatusDetails" not in status, status

    rate = ec2.create_volume(AvailabilityZone="us-east-1b", SnapshotId=sid, VolumeType="gp3", VolumeInitializationRate=100)
    rid = rate["VolumeId"]
    is_(rid, "available")
    status = ec2.describe_volume_status(VolumeIds=[rid])["VolumeStatuses"][0]
    assert status["VolumeStatus"]["Status"] == "ok", status
    assert status["InitializationStatusDetails"]["InitializationType"] == "provisioned-rate", status
    assert {d["Name"] for d in status["VolumeStatus"]["Details"]} == {"io-enabled", "io-performance", "initialization-state"}
    refused("InvalidVolumeID.Malformed", 400, ec2.describe_volume_status, VolumeIds=["bad"])

    said = ec2.lock_snapshot(SnapshotId=sid, LockMode="compliance", LockDuration=1, CoolOffPeriod=1)
    assert said["LockState"] == "compliance-cooloff", said
    locked = ec2.describe_locked_snapshots(SnapshotIds=[sid])["Snapshots"][0]
    assert locked["LockState"] == "compliance-cooloff" and locked["LockExpiresOn"] > datetime.datetime.now(datetime.timezone.utc), locked
    refused("InvalidParameterCombination", 400, ec2.lock_snapshot, SnapshotId=sid, LockMode="governance", LockDuration=1, CoolOffPeriod=1)
    ec2.lock_snapshot(SnapshotId=sid, LockMode="governance", ExpirationDate=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=3))
    refused("SnapshotLocked", 400, ec2.delete_snapshot, SnapshotId=sid)
    assert ec2.unlock_snapshot(SnapshotId=sid)["SnapshotId"] == sid
    refused("IncorrectState", 400, ec2.unlock_snapshot, SnapshotId=sid)
    assert ec2.modify_snapshot_tier(SnapshotId=sid, StorageTier="archive")["SnapshotId"] == sid
    until("archived", lambda: shown()["StorageTier"] == "archive")
    refused("IncorrectState", 400, ec2.create_volume, AvailabilityZone="us-east-1a", SnapshotId=sid)
    ec2.restore_snapshot_tier(SnapshotId=sid, PermanentRestore=True)
    until("restored", lambda: shown()["StorageTier"] == "standard")
    for extra in (made["VolumeId"], rid):
        ec2.delete_volume(VolumeId=extra)
    return sid


def snapshot_sets():
    vids = sorted(make() for _ in range(3))
    for vid, device in zip(vids, ("/dev/xvdbc", "/dev/xvdbd", "/dev/xvdbe")):
        ec2.attach_volume(VolumeId=vid, InstanceId=NODE_A, Device=device)
        until("attached", lambda: volume(vid)["Attachments"][0]["State"] == "attached")
    of = lambda *excluded, **more: {"InstanceId": NODE_A, "ExcludeDataVolumeIds": list(excluded), **more}
    said = ec2.create_snapshots(
        InstanceSpecification=of(vids[2], ExcludeBootVolume=True), Description="d", CopyTagsFromSource="volume",
        TagSpecifications=tags("snapshot", set="1"))["Snapshots"]
    assert [s["VolumeId"] for s in said] == vids[:2], said
    for s in said:
        assert (s["State"], s["Progress"], s["VolumeSize"], s["Description"]) == ("pending", "", 4, "d"), s
        assert (s["OwnerId"], s["AvailabilityZone"], s["Encrypted"]) == ("111122223333", "us-east-1a", False), s
        assert s["Tags"] == [{"Key": "set", "Value": "1"}] and s["StartTime"] == said[0]["StartTime"], s
    shown = lambda: ec2.describe_snapshots(OwnerIds=["self"], Filters=[{"Name": "tag:set", "Values": ["1"]}])["Snapshots"]
    until("completed", lambda: [s["State"] for s in shown()] == ["completed"] * 2)
    assert {s["SnapshotId"] for s in shown()} == {s["SnapshotId"] for s in said} and shown()[0]["Description"] == "d"
    assert len(ec2.create_snapshots(InstanceSpecification=of())["Snapshots"]) == 4
    refused("InvalidAttachment.NotFound", 400, ec2.create_snapshots, InstanceSpecification=of("vol-0123456789abcdef0"))
    refused("DryRunOperation", 412, ec2.create_snapshots, InstanceSpecification=of(), DryRun=True)
    for vid in vids:
        ec2.detach_volume(VolumeId=vid)
        is_(vid, "available")
        ec2.delete_volume(VolumeId=vid)


def copies(vid):
    said = ec2.copy_volumes(SourceVolumeId=vid, VolumeType="gp3", Size=17, TagSpecifications=tags("volume", copy="yes"))["Volumes"]
    assert len(said) == 1 and said[0]["SourceVolumeId"] == vid and said[0]["Size"] == 17, said
    refused("IncorrectState", 400, ec2.copy_volumes, SourceVolumeId=vid, VolumeType="gp3")
    is_(said[0]["VolumeId"], "available")
    status = ec2.describe_volume_status(VolumeIds=[said[0]["VolumeId"]])["VolumeStatuses"][0]
    assert status["InitializationStatusDetails"]["InitializationType"] == "volume-copy", status
    ec2.delete_volume(VolumeId=said[0]["VolumeId"])


def tagging(vid):
    ec2.create_tags(Resources=[vid, NODE_A], Tags=[{"Key": "x", "Value": "1"}, {"Key": "y", "Value": ""}])
    tagged = lambda: {t["Key"]: t["Value"] for t in ec2.describe_volumes(VolumeIds=[vid])["Volumes"][0]["Tags"]}
    shown = tagged()
    assert shown["x"] == "1" and shown["y"] == "", shown
    ec2.delete_tags(Resources=[vid], Tags=[{"Key": "x"}])
    shown = tagged()
    assert "x" not in shown and "y" in shown, shown
    refused("InvalidID", 400, ec2.create_tags, Resources=["vol-1"], Tags=[{"Key": "x", "Value": "1"}])
    refused("InvalidParameterValue", 400, ec2.create_tags, Resources=[vid], Tags=[{"Key": "aws:x", "Value": "1"}])


def checks(node):
    """The results of an instance's checks, by id and of all instances."""
    kinds = {"SystemStatus": "system", "InstanceStatus": "instance", "AttachedEbsStatus": "attached_ebs"}
    shown = lambda: ec2.describe_instance_status(InstanceIds=[node])["InstanceStatuses"][0]
    for found, reachable in [("impaired", "failed"), ("initializing", "initializing"), ("insufficient-data", "insufficient-data"), ("ok", "passed")]:
        for kind, name in kinds.items():
            control("PUT", f"/v1/instances/{node}/checks", {name: found})
            said = shown()[kind]
            detail = said["Details"][0]
            assert (said["Status"], detail["Name"], detail["Status"]) == (found, "reachability", reachable), said
            control("PUT", f"/v1/instances/{node}/checks", {name: "ok"})
            assert shown()[kind]["Status"] == "ok"
    assert [s["InstanceId"] for s in ec2.describe_instance_status()["InstanceStatuses"]] == [NODE_A, NODE_B]
    refused("InvalidInstanceID.NotFound", 400, ec2.describe_instance_status, InstanceIds=[node, "i-0123456789abcdef0"])
    refused("DryRunOperation", 412, ec2.describe_instance_status, DryRun=True)


def instances():
    types = ec2.describe_instance_types(InstanceTypes=["m5.large", "m7i.large", "r8gb.48xlarge", "t2.nano", "z9.large"])["InstanceTypes"]
    shown = {t["InstanceType"]: t for t in types}
    ebs = lambda t: shown[t]["EbsInfo"]["MaximumEbsAttachments"]
    assert ebs("m5.large") == 27 and ebs("m7i.large") == 32, types
    kind = lambda t: shown[t]["EbsInfo"]["AttachmentLimitType"]
    assert kind("m5.large") == "shared" and kind("m7i.large") == "dedicated", types
    assert shown["r8gb.48xlarge"]["EbsInfo"]["MaximumEbsCards"] == 2
    assert (ebs("z9.large"), kind("z9.large")) == (100, "dedicated"), types
    assert (shown["t2.nano"]["Hypervisor"], shown["z9.large"]["Hypervisor"]) == ("xen", "nitro"), types
    assert len(ec2.describe_instance_types()["InstanceTypes"]) > len(types)
    status = ec2.describe_instance_status(InstanceIds=[NODE_B])["InstanceStatuses"][0]
    assert status["InstanceStatus"]["Status"] == "ok" and status["SystemStatus"]["Details"][0]["Name"] == "reachability", status
    checks(NODE_B)
    said = ec2.stop_instances(InstanceIds=[NODE_B])["StoppingInstances"][0]
    assert said["PreviousState"]["Name"] == "running" and said["CurrentState"]["Name"] == "stopping", said
    name = lambda: ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": [NODE_B]}])["Reservations"][0]["Instances"][0]["State"]["Name"]
    until("stopped", lambda: name() == "stopped")
    assert ec2.describe_instance_status(InstanceIds=[NODE_B])["InstanceStatuses"] == []
    control("POST", f"/v1/instances/{NODE_B}/start", {})
    until("running", lambda: name() == "running")
    ec2.terminate_instances(InstanceIds=[NODE_B])
    until("terminated", lambda: name() == "terminated")
    refused("IncorrectInstanceState", 400, ec2.stop_instances, InstanceIds=[NODE_B])
    refused("InvalidInstanceID.NotFound", 400, ec2.describe_instances, InstanceIds=["i-0123456789abcdef0"])


def identity():
    assert sts.get_caller_identity()["Account"] == "111122223333"
    claims = {"iss": "https://oidc.example.com", "aud": "sts.amazonaws.com", "sub": "me", "exp": int(time.time()) + 60}
    token = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    role = {"RoleArn": "arn:aws:iam::111122223333:role/driver", "RoleSessionName": "name"}
    began = sts.assume_role_with_web_identity(**role, WebIdentityToken=f"e30.{token}.c2ln", DurationSeconds=900)
    assert began["AssumedRoleUser"]["Arn"] == "arn:aws:sts::111122223333:assumed-role/driver/name", began
    left = began["Credentials"]["Expiration"] - datetime.datetime.now(datetime.timezone.utc)
    assert 890 < left.total_seconds() <= 901, began
    refused("InvalidIdentityToken", 400, sts.assume_role_with_web_identity, **role, WebIdentityToken="a.b.c")


def throttles():
    control("PUT", "/v1/limits", {"actions": {"ModifyVolume": {"capacity": 0, "refill": 0}}})
    said = refused("RequestLimitExceeded", 503, ec2.modify_volume, VolumeId="vol-0123456789abcdef0", Size=1)
    assert said == "Request limit exceeded.", said
    control("POST", "/v1/faults", {"match": {"action": "CreateVolume"}, "count": 1, "fault": {"kind": "error", "code": "InsufficientVolumeCapacity", "status": 500}})
    refused("InsufficientVolumeCapacity", 500, ec2.create_volume, AvailabilityZone="us-east-1a", Size=1)
    refused("AuthFailure", 401, client("ec2", ENDPOINT, region="mars-1").describe_volumes)


def examples(**ids):
    """Calls each action that nothing else here calls by its example. An example with a list needs a call of its own."""
    kinds = {"integer": int, "boolean": lambda text: text == "true"}
    for action in sorted(set(ACTIONS) - CALLED):
        members = ec2.meta.service_model.operation_model(action).input_shape.members
        fields = [field.split("=", 1) for field in ACTIONS[action].format(**ids).split("&") if field]
        getattr(ec2, xform_name(action))(**{name: kinds.get(members[name].type_name, str)(value) for name, value in fields})


# The documented rates would make this wait.
control("PUT", "/v1/limits", {"scale": 100.0})
zones()
vid = volumes()
attachments(vid)
modifications(vid)
sid = snapshots(vid)
snapshot_sets()
copies(vid)
tagging(vid)
instances()
identity()
examples(volume=vid, snapshot=sid, instance=NODE_A)
throttles()
ec2.delete_volume(VolumeId=vid)
missed = set(ACTIONS) - CALLED
assert not missed, f"not called: {sorted(missed)}"
invariants = control("GET", "/v1/invariants")
assert invariants["ok"] and invariants["live"]["volumes"] == 0, invariants
print(f"every action: {len(CALLED)} called")

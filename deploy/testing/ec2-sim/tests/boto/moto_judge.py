"""Asks moto, as independent code, the same as the simulator, and compares the shape of the answers. Argument: the EC2
endpoint."""

import sys

import boto3
import moto
from strict import client

# What EC2's model has and moto leaves out.
NOT_IN_MOTO = {"AvailabilityZone", "State"}


def answer(ec2, instance, zone):
    """What a set of snapshots of an instance with two data volumes looks like, by volume size."""
    for size, device in [(4, "/dev/xvdba"), (5, "/dev/xvdbb")]:
        vid = ec2.create_volume(AvailabilityZone=zone, Size=size, VolumeType="gp3")["VolumeId"]
        ec2.get_waiter("volume_available").wait(VolumeIds=[vid], WaiterConfig={"Delay": 1})
        ec2.attach_volume(VolumeId=vid, InstanceId=instance, Device=device)
    said = ec2.create_snapshots(
        InstanceSpecification={"InstanceId": instance, "ExcludeBootVolume": True},
        Description="d",
        TagSpecifications=[{"ResourceType": "snapshot", "Tags": [{"Key": "k", "Value": "v"}]}],
    )["Snapshots"]
    assert {s["VolumeSize"] for s in said} == {4, 5} and len(said) == 2, said
    assert len({s["StartTime"] for s in said}) == 1, said
    same = lambda s: (s["VolumeSize"], s["Description"], s["Tags"], s["Encrypted"])
    shape = lambda s: {name: type(value) for name, value in s.items()}
    return {s["VolumeSize"]: (same(s), shape(s)) for s in said}


with moto.mock_aws():
    theirs = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="AKID", aws_secret_access_key="secret")
    image = theirs.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    made = theirs.run_instances(ImageId=image, MinCount=1, MaxCount=1)["Instances"][0]
    expected = answer(theirs, made["InstanceId"], made["Placement"]["AvailabilityZone"])
found = answer(client("ec2", sys.argv[1]), "i-0aaaaaaaaaaaaaaa1", "us-east-1a")
for size, (values, shape) in expected.items():
    ours, our_shape = found[size]
    assert ours == values, (ours, values)
    assert our_shape == shape | dict.fromkeys(NOT_IN_MOTO, str), (our_shape, shape)
print("moto agrees")

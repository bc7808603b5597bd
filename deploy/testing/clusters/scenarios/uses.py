"""The ways in which claims and pods use a volume beyond the usual one, and the words about input
that cannot be served."""

import json
import re
import subprocess

from rig.cluster import DRIVER
from rig.simulator import ZONE
from rig.workload import SLEEPER, Space, pod_spec

from .expect import expect


def play(rig):
    space = Space(rig, "uses")
    for use in (_attributes_class, _ephemeral, _static, _group, _one_pod, _sub_path, _frozen):
        use(rig, space)
    space.remove()
    _refused_claims(rig)


def ec2_volume(rig, volume):
    """What EC2 says of a volume."""
    (realm,) = rig.simulator.request("/v1/state")["realms"]
    return next(one for one in realm["volumes"] if one["id"] == volume)


def _attributes_class(rig, space):
    """The IOPS and throughput of a volume in use are changed by another class."""
    for name, iops, throughput in (("slow", "3000", "125"), ("fast", "4000", "250")):
        space.api.apply({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": name}, "driverName": DRIVER,
            "parameters": {"type": "gp3", "iops": iops, "throughput": throughput}})
    # 4,000 operations need 8 GiB.
    space.claim("attributes", "10Gi")
    space.pod("attributes", "n1", "attributes")
    space.wait_ready("attributes")
    volume = space.volume_of("attributes")
    for name, iops in (("slow", 3000), ("fast", 4000)):
        change = {"spec": {"volumeAttributesClassName": name}}
        space.api.patch("PersistentVolumeClaim", "attributes", space.name, change)
        space.api.wait(f"class {name} in force", lambda: space.get(
            "PersistentVolumeClaim", "attributes")["status"].get("currentVolumeAttributesClassName") == name, 90)
        expect(ec2_volume(rig, volume)["shape"]["iops"] == iops, f"the volume has {iops} IOPS")
    space.delete_pod("attributes")
    for name in ("slow", "fast"):
        space.api.delete("VolumeAttributesClass", name)
    space.step("VolumeAttributesClass changed twice while the volume is mounted")


def _ephemeral(_, space):
    """A volume that lives as long as its pod."""
    spec = pod_spec("echo one >/data/one && sync /data/one; " + SLEEPER, "n1", None, False)
    spec["containers"][0]["volumeMounts"] = [{"name": "scratch", "mountPath": "/data"}]
    template = {"accessModes": ["ReadWriteOnce"], "storageClassName": "ebs-ext4",
                "resources": {"requests": {"storage": "1Gi"}}}
    spec["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": template}}}]
    space.start("ephemeral", spec)
    space.wait_ready("ephemeral")
    expect(space.volume_of("ephemeral-scratch"), "the pod has a claim of its own")
    space.delete_pod("ephemeral")
    space.api.wait("claim gone with its pod",
                   lambda: not space.get("PersistentVolumeClaim", "ephemeral-scratch"), 60)
    space.step("generic ephemeral volume came and went with its pod")


def _static(rig, space):
    """A volume that somebody made in EC2 becomes a PersistentVolume by hand."""
    made = rig.simulator.request("/v1/as-foreign", "POST", {
        "action": "CreateVolume",
        "parameters": {"AvailabilityZone": ZONE, "Size": "1", "VolumeType": "gp3"}})
    volume = re.search(r"vol-[0-9a-f]+", made["body"]).group()
    topology = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [ZONE]}
    space.api.apply({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "static"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
            "csi": {"driver": DRIVER, "volumeHandle": volume, "fsType": "ext4"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [topology]}]}},
        }})
    space.claim("static", kind="", volume="static")
    space.pod("static", "n1", "static", f"echo one >/data/one; {SLEEPER}")
    space.wait_ready("static")
    space.delete_pod("static")
    space.pod("static", "n2", "static", SLEEPER)
    space.wait_ready("static")
    expect(space.run("static", "cat /data/one") == "one", "the data is on n2")
    space.delete_pod("static")
    space.api.delete("PersistentVolumeClaim", "static", space.name)
    space.api.wait("claim gone", lambda: not space.get("PersistentVolumeClaim", "static"), 60)
    space.api.delete("PersistentVolume", "static")
    space.api.wait("attachment gone", lambda: not space.api.list("VolumeAttachment"), 90)
    expect(ec2_volume(rig, volume)["status"] == "available", "the volume outlives its PersistentVolume")
    rig.simulator.request("/v1/as-foreign", "POST", {
        "action": "DeleteVolume", "parameters": {"VolumeId": volume}})
    space.step("static PersistentVolume used on both nodes; its volume stays in EC2")


def _group(_, space):
    """A user without rights writes to a volume by its group."""
    space.claim("group")
    spec = pod_spec(f"echo one >/data/one; {SLEEPER}", "n1", "group", False)
    spec["securityContext"] = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000}
    space.start("group", spec)
    space.wait_ready("group")
    found = space.run("group", "stat -c '%g %a' /data; stat -c '%u %g' /data/one").split()
    expect(found[0] == "2000" and found[2:] == ["1000", "2000"], f"fsGroup owns the volume: {found}")
    space.delete_pod("group")
    space.step("fsGroup: a user who is not root writes to the volume")


def _one_pod(_, space):
    """ReadWriteOncePod keeps a second pod away, also on the same node."""
    space.claim("one-pod", access="ReadWriteOncePod")
    space.pod("first", "n1", "one-pod", SLEEPER)
    space.wait_ready("first")
    space.pod("second", "n1", "one-pod", SLEEPER)
    space.api.wait("second pod kept waiting", lambda: "ReadWriteOncePod" in space.why("second"), 60)
    expect(space.node_of("second") is None, "the second pod has no node")
    space.delete_pod("first")
    space.wait_ready("second")
    space.delete_pod("second")
    space.step("ReadWriteOncePod: the second pod started when the first was gone")


def _sub_path(_, space):
    """Two directories of one volume, each as a mount of its own."""
    space.claim("parts")
    spec = pod_spec(f"echo a >/a/file; echo b >/b/file; {SLEEPER}", "n1", "parts", False)
    spec["containers"][0]["volumeMounts"] = [
        {"name": "volume", "mountPath": "/a", "subPath": "a"},
        {"name": "volume", "mountPath": "/b", "subPath": "deeper/b"},
        {"name": "volume", "mountPath": "/data", "readOnly": True}]
    space.start("parts", spec)
    space.wait_ready("parts")
    found = space.run("parts", "cat /data/a/file /data/deeper/b/file").split()
    expect(found == ["a", "b"], f"both directories are of the volume: {found}")
    space.delete_pod("parts")
    space.step("subPath: two directories of one volume in a pod")


def _frozen(rig, space):
    """A backup freezes a file system and never thaws it; then the pod moves to the other node."""
    space.claim("frozen")
    space.pod("frozen", "n1", "frozen", f"echo one >/data/one; sync /data/one; {SLEEPER}")
    space.wait_ready("frozen")
    node = rig.node("n1")
    path = next(line.split()[4] for line in node.volume_mounts() if "globalmount" in line)

    def fsfreeze(flag, check):
        subprocess.run(["nsenter", "-t", str(node.first_process()), "--mount", "fsfreeze", flag, path],
                       check=check, stderr=subprocess.DEVNULL)

    fsfreeze("-f", True)
    try:
        space.delete_pod("frozen")
        space.api.wait("attachment gone", lambda: not space.api.list("VolumeAttachment"), 90)
    except BaseException:
        fsfreeze("-u", False)
        raise
    space.pod("frozen", "n2", "frozen", SLEEPER)
    space.wait_ready("frozen")
    expect(space.run("frozen", "cat /data/one") == "one", "the data is on n2")
    space.delete_pod("frozen")
    space.step("a file system that was frozen and not thawed left its node")


# What the class says, what is asked for, and what the claim's event must name.
_CLAIMS = (
    ("unknown key", {"type": "gp3", "colour": "blue"}, {}, "1Gi", "colour"),
    ("unknown type", {"type": "gp9"}, {}, "1Gi", "gp9"),
    ("no number", {"type": "gp3", "iops": "many"}, {}, "1Gi", "many"),
    ("format option", {"type": "gp3", "blockSize": "4k!"}, {}, "1Gi", "blocksize"),
    ("option of another file system",
     {"type": "gp3", "csi.storage.k8s.io/fstype": "xfs", "ext4BigAlloc": "true"}, {}, "1Gi", "xfs"),
    ("too large", {"type": "gp3"}, {}, "100Ti", "larger"),
    ("unknown zone", {"type": "gp3"}, {"allowedTopologies": [{"matchLabelExpressions": [
        {"key": "topology.kubernetes.io/zone", "values": ["us-west-2a"]}]}]}, "1Gi", "us-west-2a"),
    ("mount option that reaches past the disk", {}, {"mountOptions": ["loop"]}, "1Gi", "loop"),
    ("unknown mount option", {}, {"mountOptions": ["colour=blue"]}, "1Gi", "colour"),
    ("mount option of another file system", {}, {"mountOptions": ["nouuid"]}, "1Gi", "nouuid"),
)


def _class(space, name, parameters, more):
    space.api.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                     "metadata": {"name": name}, "provisioner": DRIVER, "parameters": parameters, **more})


def _refused_claims(rig):
    """Claims that no volume is made for."""
    space = Space(rig, "refused-claims")
    for number, (what, parameters, more, size, word) in enumerate(_CLAIMS):
        name = f"refused-{number}"
        _class(space, name, parameters, {"volumeBindingMode": "Immediate", **more})
        space.claim(name, size, name)
        said = space.api.wait(f"event about: {what}", lambda: _said(space, name, "Provisioning"), 60)
        expect(word.lower() in said.lower(), f"the event about {what} names {word}: {said}")
        print(f"    {what:<30} {json.dumps(parameters)} {size}\n      {said}", flush=True)
    for number in range(len(_CLAIMS)):
        space.api.delete("PersistentVolumeClaim", f"refused-{number}", space.name)
        space.api.delete("StorageClass", f"refused-{number}")
    space.step(f"{len(_CLAIMS)} claims refused, each event names what is wrong")
    space.remove()


def _said(space, name, reason):
    """The driver's words in the last event of such a reason about an object."""
    lines = [line.strip() for line in space.why(name).splitlines() if reason in line.split(":")[0]]
    said = [line for line in lines if "desc = " in line or "error generating" in line]
    return said[-1].partition("desc = ")[2] or said[-1] if said else None

"""VolumeGroupSnapshots: the volumes of a pod at one moment, and nothing that stays behind."""

import contextlib
import os

from rig.cluster import DRIVER
from rig.simulator import INSTANCES
from rig.workload import SLEEPER, Space, pod_spec

from .expect import expect

# Of RIG_ROUNDS cuts each is restored and read.
_ROUNDS = int(os.environ.get("RIG_ROUNDS", "20"))
# Each number is synced to the first volume before it is written to the second.
_WRITER = ("n=0; while n=$((n + 1)); do echo $n >>/0/log; sync /0/log; "
           "echo $n >>/1/log; sync /1/log; done")
# csi-snapshotter asks again within a minute after a refusal.
_READY = 120
# So long after its deletion no snapshot of a group may be left.
_DELETED = 60
_PENDING = 60_000
_USUAL = 100


def play(rig):
    # Members get ready at csi-snapshotter's next look at everything; `examples` keeps the chart's.
    often = {"snapshotter": {"additionalArgs": ["--resync-period=5s"]}}
    rig.install({"groupSnapshots": {"enabled": True}, "sidecars": often})
    rig.wait_installed()
    rig.api.apply({"apiVersion": "groupsnapshot.storage.k8s.io/v1",
                   "kind": "VolumeGroupSnapshotClass", "metadata": {"name": "ebs"},
                   "driver": DRIVER, "deletionPolicy": "Delete"})
    space = Space(rig, "groups")
    _pod(space, "writer", "n1", ("first", "second"), _WRITER, label="pair")
    space.wait_ready("writer")
    space.api.wait("a number on both volumes", lambda: space.run("writer", "cat /1/log", check=False), 30)
    try:
        for part in (_one_moment, _single_snapshots, _taken_apart, _deleted_at_any_moment,
                     _apart_then_together):
            part(rig, space)
    finally:
        rig.simulator.latency(snapshot={"fixed_ms": _USUAL})
        # Nobody deletes them once groups are off.
        with contextlib.suppress(TimeoutError, AssertionError):
            for one in rig.api.list("VolumeGroupSnapshot", space.name):
                _delete_group(space, one["metadata"]["name"])
    rig.api.delete("VolumeGroupSnapshotClass", "ebs")
    space.remove()
    rig.install()
    rig.wait_installed()


def _one_moment(_, space):
    between = 0
    for number in range(_ROUNDS):
        _make_group(space, "moment", "pair")
        members = _wait_members(space, "moment")
        first, second = _restored(space, members["first"], members["second"])
        expect(0 < second <= first <= second + 1,
               f"cut {number} is of one moment: {first} on the first volume, {second} on the second")
        between += first - second
        _delete_group(space, "moment")
    space.step(f"{_ROUNDS} cuts under a writer restored: both volumes of one moment, "
               f"{between} times between the writes of a number")


def _single_snapshots(_, space):
    """The control: a snapshot of each volume is of two moments."""
    for name in ("first", "second"):
        space.snapshot(name, name)
    first, second = _restored(space, "first", "second")
    expect(second > first, f"two snapshots are of two moments: {first} and {second}")
    for name in ("first", "second"):
        space.api.delete("VolumeSnapshot", name, space.name)
    _wait_no_snapshots(space, _DELETED)
    space.step(f"two snapshots are of two moments: {first} on the first volume, {second} on the second")


def _taken_apart(rig, space):
    """What backup tools do, Velero for one: the group goes without its storage, each member is
    adopted, and deleted by itself."""
    _make_group(space, "backup", "pair")
    members = _wait_members(space, "backup").values()
    bound = "boundVolumeSnapshotContentName"
    kept = [("VolumeSnapshotContent", space.get("VolumeSnapshot", one)["status"][bound]) for one in members]
    handles = [space.api.get(*content)["status"]["snapshotHandle"] for content in kept]
    kept.append(("VolumeGroupSnapshotContent", _status(space, "backup")["boundVolumeGroupSnapshotContentName"]))
    group = space.api.get(*kept[-1])["status"]["volumeGroupSnapshotHandle"]
    for kind, name in kept:
        space.api.patch(kind, name, None, {"spec": {"deletionPolicy": "Retain"}})
    space.api.delete("VolumeGroupSnapshot", "backup", space.name)
    space.api.wait("members gone", lambda: not space.api.list("VolumeSnapshot", space.name), _DELETED)
    for content in kept:
        space.api.delete(*content)
        space.api.wait("content gone", lambda content=content: not space.api.get(*content), _DELETED)
    expect(_snapshots(rig) == len(handles), "the members outlive their group")
    before = len(rig.simulator.calls("DeleteSnapshot"))
    for number, handle in enumerate(handles):
        _adopt(space, f"backup-{number}", handle, group)
    for number in range(len(handles)):
        space.api.delete("VolumeSnapshot", f"backup-{number}", space.name)
    _wait_no_snapshots(space, _DELETED)
    deleted = len(rig.simulator.calls("DeleteSnapshot")) - before
    expect(deleted == len(handles), f"{len(handles)} calls deleted the members, not {deleted}")
    space.step("members that outlived their group adopted and deleted one by one")


def _deleted_at_any_moment(rig, space):
    rig.simulator.latency(snapshot={"fixed_ms": _PENDING})
    moments = {"at once": lambda: None,
               "once EC2 has it": lambda: space.api.wait("cut", lambda: _snapshots(rig), 30),
               "once its handle is known": lambda: _wait_handle(space, "gone")}
    for when, wait in moments.items():
        _make_group(space, "gone", "pair")
        # Before, it is gone at once, and snapshot-controller goes on.
        space.api.wait("finalizer", lambda: (space.get("VolumeGroupSnapshot", "gone") or {})
                       .get("metadata", {}).get("finalizers"), 30)
        wait()
        _delete_group(space, "gone")
        space.step(f"a pending group deleted {when}: no snapshot left")
    rig.simulator.latency(snapshot={"fixed_ms": _USUAL})


def _apart_then_together(rig, space):
    space.delete_pod("writer")
    nodes = {"left": "n1", "right": "n2"}
    for name, node in nodes.items():
        _pod(space, name, node, (name,), SLEEPER, label="apart")
    for name in nodes:
        space.wait_ready(name)
    _make_group(space, "apart", "apart")
    why = space.api.wait("refusal in the status", lambda: _status(space, "apart").get("error"), 60)
    for name, node in nodes.items():
        place = f"{space.volume_of(name)} is attached to {INSTANCES[node]}"
        expect(place in why["message"], f"the status says that {place}: {why['message']}")
    expect(not _snapshots(rig), "no snapshot of volumes on two nodes")
    for name in nodes:
        space.delete_pod(name)
    _pod(space, "together", "n1", tuple(nodes), SLEEPER)
    space.wait_ready("together")
    _wait_members(space, "apart")
    space.step("volumes on two nodes: refused by name, ready once a pod has both")
    _delete_group(space, "apart")


def _pod(space, name, node, claims, command, label=None):
    """A pod with a directory for each claim; with a label, it makes the claims."""
    spec = pod_spec(command, node, None, False)
    spec["volumes"] = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    spec["containers"][0]["volumeMounts"] = [
        {"name": one, "mountPath": f"/{number}"} for number, one in enumerate(claims)]
    for one in claims if label else ():
        space.claim(one)
        space.api.patch("PersistentVolumeClaim", one, space.name,
                        {"metadata": {"labels": {"group": label}}})
    space.start(name, spec)


def _make_group(space, name, label):
    space.api.apply({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot",
        "metadata": {"name": name, "namespace": space.name},
        "spec": {"volumeGroupSnapshotClassName": "ebs",
                 "source": {"selector": {"matchLabels": {"group": label}}}},
    })


def _status(space, group):
    return (space.get("VolumeGroupSnapshot", group) or {}).get("status", {})


def _wait_members(space, group):
    """The members' names by their claims, once the group and each of them are ready."""
    def members():
        if not _status(space, group).get("readyToUse"):
            return None
        all_of = [one for one in space.api.list("VolumeSnapshot", space.name)
                  if one.get("status", {}).get("volumeGroupSnapshotName") == group]
        ready = [one for one in all_of if one["status"].get("readyToUse")]
        names = {one["spec"]["source"]["persistentVolumeClaimName"]: one["metadata"]["name"] for one in ready}
        return names if len(names) == 2 else None
    try:
        return space.api.wait(f"group {group} ready", members, _READY)
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {_status(space, group)}\n{space.why(group)}") from None


def _wait_handle(space, group):
    def known():
        content = _status(space, group).get("boundVolumeGroupSnapshotContentName")
        found = space.api.get("VolumeGroupSnapshotContent", content) if content else None
        return (found or {}).get("status", {}).get("volumeGroupSnapshotHandle")
    space.api.wait(f"handle of group {group}", known, 30)


def _restored(space, *snapshots):
    """The last number on a volume of each snapshot."""
    claims = [f"restored-{number}" for number in range(len(snapshots))]
    for claim, name in zip(claims, snapshots):
        space.claim(claim, source={"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name})
    _pod(space, "restored", "n2", claims, SLEEPER)
    space.wait_ready("restored")
    numbers = space.run("restored", "tail -n 1 /0/log; tail -n 1 /1/log").split()
    space.delete_pod("restored")
    for claim in claims:
        space.api.delete("PersistentVolumeClaim", claim, space.name)
        space.api.wait(f"claim {claim} gone", lambda claim=claim: not space.get("PersistentVolumeClaim", claim), 60)
    return [int(number) for number in numbers]


def _delete_group(space, name):
    space.api.delete("VolumeGroupSnapshot", name, space.name)
    space.api.wait(f"group {name} gone", lambda: not space.get("VolumeGroupSnapshot", name), _DELETED)
    _wait_no_snapshots(space, _DELETED)


def _wait_no_snapshots(space, seconds):
    kinds = ("VolumeGroupSnapshotContent", "VolumeSnapshotContent")
    space.api.wait("no content of a snapshot", lambda: not any(map(space.api.list, kinds)), seconds)
    left = _snapshots(space.rig)
    expect(not left, f"{left} snapshots left in EC2")


def _snapshots(rig):
    return rig.simulator.invariants()["live"]["snapshots"]


def _adopt(space, name, handle, group):
    """Makes a VolumeSnapshot of a snapshot that was a member."""
    version = "snapshot.storage.k8s.io/v1"
    space.api.apply({
        "apiVersion": version, "kind": "VolumeSnapshotContent",
        "metadata": {"name": name,
                     "annotations": {"groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle": group}},
        "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "source": {"snapshotHandle": handle},
                 "volumeSnapshotRef": {"name": name, "namespace": space.name}},
    }, {
        "apiVersion": version, "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": space.name},
        "spec": {"source": {"volumeSnapshotContentName": name}},
    })
    space.api.wait(f"snapshot {name} ready", lambda: (space.get("VolumeSnapshot", name) or {})
                   .get("status", {}).get("readyToUse"), 60)

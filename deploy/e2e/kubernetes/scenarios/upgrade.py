"""One `helm upgrade` from the Go driver's chart to this one, and `helm rollback`, with volumes
mounted. A stand-in for the Go driver lays down what that driver leaves (`go-driver`)."""

import datetime
import hashlib
import re
import shutil
import threading
import time
from pathlib import Path

from rig import audit
from rig.api import Api
from rig.cluster import ACCOUNTS, CONTROLLER, DRIVER, NAMESPACE, NODE, RELEASE
from rig.workload import BLOCK_DEVICE, SLEEPER, Space

from .expect import expect

# Each number is on the disk before the next one is written. A failed write or sync ends the
# container.
_COUNTING = ("i=$(tail -n 1 /data/log 2>/dev/null || echo 0); "
             "while :; do i=$((i+1)); echo $i >>/data/log && sync /data/log || exit 1; sleep .05; done")
# One number in each sector of the disk.
_COUNTING_RAW = ("i=0; while :; do i=$((i+1)); printf '%0511d\\n' $i | "
                 f"dd of={BLOCK_DEVICE} bs=512 seek=$i conv=notrunc,fsync 2>/dev/null || exit 1; "
                 "echo $i >/tmp/next; mv /tmp/next /tmp/last; sleep .05; done")
_COUNTERS = ("counter-0", "counter-1")
_KINDS = ("ext4", "xfs", "raw")
_CALLS = ("NodeStageVolume", "NodePublishVolume", "NodeGetVolumeStats", "NodeExpandVolume",
          "NodeUnpublishVolume", "NodeUnstageVolume")
# What this machine or the interface leaves out.
_LEFT_OUT = {("ext4", "NodeExpandVolume"): "a mounted ext4 grows with CAP_SYS_RESOURCE alone",
             ("raw", "NodeExpandVolume"): "a raw volume has grown once EC2 has grown it"}
_GO_DRIVER, _OURS = "the Go driver's stand-in", "this driver"


def play(rig):
    _start_over_as_go_driver(rig)
    space = Space(rig, "upgrade")
    space.step("stand-in installed as a release of the Go driver's chart")
    _write(space)
    _hand_over_volumes(space, "n1")
    _unfinished(rig, space)
    space.step("two counters, a raw counter and three volumes to hand over; one format cut off, "
               "one not begun")

    _change(rig, space, _OURS, lambda: (rig.install(), rig.wait_installed(240)))
    table = {_OURS: _takes_over(rig, space, _OURS, "n1", "n2", "2Gi")}
    _refuses_unfinished(space)
    _change(rig, space, _GO_DRIVER, lambda: (_roll_back(rig), _wait_go_driver(rig)))
    table[_GO_DRIVER] = _takes_over(rig, space, _GO_DRIVER, "n2", "n1", "3Gi")
    _finishes_unfinished(space)
    _show(table)

    _change(rig, space, _OURS, lambda: (rig.install(), rig.wait_installed(240)))
    _counted(space)
    _refused_requests(rig, space)
    space.step("no number lost, no I/O error, no container started anew")
    space.remove()


def _start_over_as_go_driver(rig):
    """Removes this driver with what it leaves on the nodes, and installs the stand-in."""
    rig.run_helm("uninstall", RELEASE)
    for app in (CONTROLLER, NODE):
        rig.api.wait(f"pods of {app} gone",
                     lambda: not rig.api.list("Pod", NAMESPACE, labels=f"app={app}"), 90)
    for node in rig.nodes:
        shutil.rmtree(node.root() / "run/ebs-csi")
        for socket in (node.directory / "kubelet/plugins_registry").glob(f"{DRIVER}*"):
            socket.unlink()
        rig.api.wait(f"driver gone from CSINode {node.name}",
                     lambda: not rig.registered(node.name), 60)
    # As Helm 3 did, with which most releases of the Go driver were installed.
    rig.run_helm("install", RELEASE, rig.here / "go-driver/chart", "--values",
                 rig.here / "values.yaml", "--server-side=false")
    _wait_go_driver(rig)


def _roll_back(rig):
    rig.run_helm("rollback", RELEASE, "1")


def _wait_go_driver(rig):
    rig.api.wait("controller ready", rig.controller_ready, 240)
    rig.api.wait("node pods ready", rig.node_pods_ready, 240)
    for node in rig.nodes:
        rig.api.wait(f"stand-in registered on {node.name}",
                     lambda: _registered_after_start(rig, node.name), 60)


def _registered_after_start(rig, node):
    pods = rig.driver_pods(NODE, node)
    return (len(pods) == 1 and rig.registered(node)
            and "kubelet has registered" in rig.log(pods[0]["metadata"]["name"], "node-driver-registrar"))


def _write(space):
    """Two counters on a file system and one on a raw disk, which nobody touches until the end."""
    space.stateful_set("counter", len(_COUNTERS), _COUNTING)
    space.claim("raw", mode="Block")
    space.pod("raw", "n2", "raw", _COUNTING_RAW, block=True)
    for pod in (*_COUNTERS, "raw"):
        space.wait_ready(pod)


def _hand_over_volumes(space, node):
    """A volume of each kind, which the other side takes over."""
    for kind in _KINDS:
        if kind == "raw":
            space.claim(f"over-{kind}", mode="Block")
        else:
            space.claim(f"over-{kind}", kind=f"ebs-{kind}")
        _user(space, f"over-{kind}", kind, node)
    for kind in _KINDS:
        space.wait_ready(f"over-{kind}")
        space.run(f"over-{kind}", _mark(kind))


def _user(space, name, kind, node):
    space.pod(name, node, f"over-{kind}", SLEEPER, block=kind == "raw")


def _mark(kind):
    if kind == "raw":
        return f"printf marked | dd of={BLOCK_DEVICE} conv=notrunc,fsync 2>/dev/null"
    return "printf marked >/data/mark; sync"


def _marked(space, pod, kind):
    read = f"dd if={BLOCK_DEVICE} bs=6 count=1 2>/dev/null" if kind == "raw" else "cat /data/mark"
    return space.run(pod, read) == "marked"


def _unfinished(rig, space):
    """Volumes that the stand-in attached and did not get formatted: one is still blank, and the
    format of the other one was killed after some writes."""
    order = rig.node("n1").directory / "kubelet/plugins" / DRIVER / "end-of-format"
    for name, how in (("blank", "hold"), ("cut-off", "20")):
        order.write_text(how)
        space.claim(name)
        space.pod(name, "n1", name, SLEEPER)
        space.api.wait(f"format of {name} failed", lambda: _failed_mount(space, name), 60)
    order.unlink()


def _failed_mount(space, name):
    return "MountVolume.MountDevice failed" in space.why(name)


def _refuses_unfinished(space):
    for name in ("blank", "cut-off"):
        said = space.api.wait(f"words about {name}", lambda: _words(space, name), 180)
        expect(not space.ready(name), f"the {name} volume is not in use")
        space.step(f"{name} volume: {said}")
    volume = space.get("PersistentVolumeClaim", "blank")["spec"]["volumeName"]
    space.delete_pod("blank")
    space.api.wait("blank volume detached", lambda: not _attached(space, volume), 60)
    space.pod("blank", "n1", "blank", SLEEPER)
    space.wait_ready("blank")
    space.delete_pod("blank")
    space.step("blank volume attached anew by this driver, formatted and in use")


def _attached(space, volume):
    return any(one["spec"]["source"].get("persistentVolumeName") == volume
               for one in space.api.list("VolumeAttachment"))


def _words(space, name):
    """This driver's last refusal on the pod, None while there is none."""
    found = re.findall(r"rpc error: code = (\w+) desc = (.*)", space.why(name))
    own = [f"{code}: {text}" for code, text in found if "mkfs" not in text and code != "Internal"]
    return own[-1] if own else None


def _finishes_unfinished(space):
    """The Go driver formats again what looks blank to it."""
    space.wait_ready("cut-off", 240)
    space.delete_pod("cut-off")
    space.step("cut-off format done again by the stand-in, volume in use")


class _Watch(threading.Thread):
    """For how long CSINode lacks the driver, and a node a ready pod of the driver."""

    def __init__(self, rig):
        super().__init__(daemon=True)
        self._rig = rig
        self._api = Api(rig.certificates)
        self._end = threading.Event()
        self._since = {}
        self.longest = {}

    def run(self):
        while not self._end.wait(0.05):
            ready = self._ready_nodes()
            for node in self._rig.nodes:
                self._note(("CSINode", node.name), self._in_csi_node(node.name))
                self._note(("pod", node.name), node.name in ready)

    def _in_csi_node(self, node):
        drivers = (self._api.get("CSINode", node) or {}).get("spec", {}).get("drivers") or []
        return any(one["name"] == DRIVER for one in drivers)

    def _ready_nodes(self):
        pods = self._api.list("Pod", NAMESPACE, labels=f"app={NODE}")
        return {pod["spec"].get("nodeName") for pod in pods
                if "deletionTimestamp" not in pod["metadata"]
                and any(one["type"] == "Ready" and one["status"] == "True"
                        for one in pod.get("status", {}).get("conditions", []))}

    def _note(self, key, there):
        now = time.monotonic()
        if there:
            self._since.pop(key, None)
        else:
            since = self._since.setdefault(key, now)
            self.longest[key] = max(self.longest.get(key, 0.0), now - since)

    def end(self):
        self._end.set()
        self.join()


def _change(rig, space, to, action):
    """Changes the driver, and shows that no mount changed and all pods wrote on."""
    marks = _marks(space)
    mounts = _mounts(rig, space, marks)
    before = _last_numbers(space)
    watch = _Watch(rig)
    watch.start()
    started = time.monotonic()
    try:
        action()
    finally:
        watch.end()
    seconds = time.monotonic() - started
    after = _mounts(rig, space, marks)
    expect(after == mounts, f"no mount changed: {mounts} became {after}")
    space.api.wait("all write on", lambda: all(
        now > before[pod] for pod, now in _last_numbers(space).items()), 30)
    space.step(f"changed to {to} in {seconds:.1f} s: {len(mounts)} mounts as before")
    for node in rig.nodes:
        without, pod = (watch.longest.get((what, node.name), 0.0) for what in ("CSINode", "pod"))
        space.step(f"{node.name}: {without:.1f} s without the driver in CSINode, "
                   f"{pod:.1f} s without a ready pod")
        expect(without <= pod + 1, f"CSINode {node.name} had the driver again with its pod")


def _marks(space):
    """The parts of paths that name the volumes in use: PersistentVolumes and hashed handles."""
    marks = []
    for claim in ("volume-counter-0", "volume-counter-1", "raw", *(f"over-{kind}" for kind in _KINDS)):
        marks.append(space.get("PersistentVolumeClaim", claim)["spec"]["volumeName"])
        marks.append(hashlib.sha256(space.volume_of(claim).encode()).hexdigest())
    return marks


def _mounts(rig, space, marks):
    """The nodes' mounts of these volumes and what the containers see of them, as in mountinfo: the
    first number is the mount's id."""
    found = set()
    for node in rig.nodes:
        found.update(f"{node.name} {line}" for line in node.volume_mounts()
                     if any(mark in line for mark in marks))
    for pod in (*_COUNTERS, "raw"):
        table = Path(f"/proc/{_first_process(rig, space, pod)}/mountinfo").read_text().splitlines()
        found.update(f"{pod} {line}" for line in table if " /data " in line)
    return found


def _first_process(rig, space, pod):
    """The first process of a pod's container."""
    uid = space.get("Pod", pod)["metadata"]["uid"]
    for node in rig.nodes:
        for pid in node.processes("busybox"):
            if _is_first_of(pid, uid):
                return pid
    raise AssertionError(f"{pod} has no process")


def _is_first_of(pid, uid):
    try:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        inner = next(line.split()[-1] for line in status if line.startswith("NSpid:"))
        return inner == "1" and uid in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False  # It has ended.


def _last_numbers(space):
    numbers = {pod: int(space.run(pod, "tail -n 1 /data/log")) for pod in _COUNTERS}
    numbers["raw"] = int(space.run("raw", "cat /tmp/last"))
    return numbers


def _counted(space):
    """Every number is there, and no container ended."""
    for pod in (*_COUNTERS, "raw"):
        if pod == "raw":
            last = int(space.run(pod, "cat /tmp/last"))
            text = space.run(pod, f"dd if={BLOCK_DEVICE} bs=512 skip=1 count={last} 2>/dev/null")
        else:
            text = space.run(pod, "cat /data/log")
        numbers = [int(line) for line in text.split()]
        expect(numbers == list(range(1, len(numbers) + 1)), f"{pod} counts without a gap")
        states = space.get("Pod", pod)["status"]["containerStatuses"]
        expect(all(one["restartCount"] == 0 for one in states), f"{pod} was never started anew")


# Helm takes roles away before the pods that had them end: the Go driver's preStop hook may not ask
# for its node any more, and node-lifecycle and the sidecars not renew their leases.
_REFUSED = (r":ebs-csi-node-sa: get /api/v1/nodes/n[12]$",
            r":ebs-csi-controller-sa: \w+ .*/leases/(ebs-csi-node-lifecycle|(external-\w+-(leader-)?)?"
            r"ebs-csi-aws-com)$")


def _refused_requests(rig, space):
    """What the API server refused the driver's accounts while the roles changed."""
    refused = sorted(set(audit.forbidden(rig, ACCOUNTS)))
    for one in refused:
        expect(any(re.search(allowed, one) for allowed in _REFUSED), f"{one} is not refused")
        space.step(f"refused while the roles changed: {one}")
    rig.audited_from = datetime.datetime.now(datetime.timezone.utc).isoformat()


def _takes_over(rig, space, side, node, other, size):
    """Each call once on what the other side staged on this node; the pods end on the other node.
    Returns how often each call was answered, by kind of volume."""
    volumes = {kind: space.volume_of(f"over-{kind}") for kind in _KINDS}
    since = time.time()

    def answered(kind, call):
        return _answers(rig, side, node, since).count((call, volumes[kind]))

    def wait_for(call, kinds=_KINDS):
        for kind in kinds:
            space.api.wait(f"{call} of {kind} by {side}", lambda: answered(kind, call) > 0, 90, 0.5)

    # kubelet stages and publishes anew what it finds mounted when it starts.
    marks = _marks(space)
    mounts = _mounts(rig, space, marks)
    machine = rig.node(node)
    machine.kill_kubelet()
    machine.start_kubelet()
    rig.wait_node(machine)
    wait_for("NodeStageVolume", ("ext4", "xfs"))
    wait_for("NodePublishVolume")
    expect(_mounts(rig, space, marks) == mounts, "staging and publishing again changed no mount")
    space.step(f"{side} answers stage and publish of what is mounted, and mounts nothing anew")

    for kind in _KINDS:
        _user(space, f"second-{kind}", kind, node)
    for kind in _KINDS:
        space.wait_ready(f"second-{kind}")
        expect(_marked(space, f"second-{kind}", kind), f"a second pod reads the {kind} volume")
    space.step(f"second pods on the same volumes, published by {side}")

    for kind in ("xfs", "raw"):
        space.resize(f"over-{kind}", size)
    for kind in ("xfs", "raw"):
        space.wait_capacity(f"over-{kind}", size)
    wait_for("NodeExpandVolume", ("xfs",))
    expect(_size(space, "xfs") > (int(size[0]) - 1) << 30, "the pod sees the file system's new size")
    expect(_size(space, "raw") == int(size[0]) << 30, "the pod sees the disk's new size")
    space.step(f"xfs and raw volume expanded to {size} while mounted")
    wait_for("NodeGetVolumeStats")
    space.step("statistics of all three read by kubelet")

    for kind in _KINDS:
        space.delete_pod(f"second-{kind}")
        expect(_marked(space, f"over-{kind}", kind), f"the first pod still has the {kind} volume")
    wait_for("NodeUnpublishVolume")
    for kind in _KINDS:
        space.delete_pod(f"over-{kind}")
    wait_for("NodeUnstageVolume")
    counts = {(kind, call): answered(kind, call) for kind in _KINDS for call in _CALLS}
    for kind in _KINDS:
        _user(space, f"over-{kind}", kind, other)
    for kind in _KINDS:
        space.wait_ready(f"over-{kind}")
        expect(_marked(space, f"over-{kind}", kind), f"the {kind} volume has its data on {other}")
    space.step(f"unpublished and unstaged on {node}; pods ready on {other} with the data")
    return counts


def _size(space, kind):
    if kind == "raw":
        return int(space.run("over-raw", f"blockdev --getsize64 {BLOCK_DEVICE}"))
    return int(space.run(f"over-{kind}", "df -k /data | tail -n 1 | awk '{print $2}'")) * 1024


def _answers(rig, side, node, since):
    """The calls that the pod on a node answered with success: method and volume."""
    age = f"--since={int(time.time() - since) + 2}s"
    (pod,) = rig.driver_pods(NODE, node)
    found = []
    for line in rig.log(pod["metadata"]["name"], "ebs-plugin", age).splitlines():
        method = re.search(r"\b(Node\w+)\b", line)
        volume = re.search(r"\bvol-[0-9a-f]+\b", line)
        succeeded = line.endswith(" ok") if side == _GO_DRIVER else 'outcome="OK"' in line
        if method and volume and succeeded:
            found.append((method.group(1), volume.group()))
    return found


def _show(table):
    print("\n  calls answered with success on what the other side had staged")
    print(f"    {'by':<26} {'call':<20} " + " ".join(f"{kind:>5}" for kind in _KINDS))
    for side, counts in table.items():
        for call in _CALLS:
            cells = ["-" if (kind, call) in _LEFT_OUT else counts[kind, call] for kind in _KINDS]
            print(f"    {side:<26} {call:<20} " + " ".join(f"{cell:>5}" for cell in cells))
    for (kind, call), why in _LEFT_OUT.items():
        print(f"    -: {call} of {kind}: {why}")

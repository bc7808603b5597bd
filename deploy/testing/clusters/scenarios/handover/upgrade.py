"""One `helm upgrade` from the Go driver's chart to this one, and `helm rollback`, with volumes
mounted. A stand-in for the Go driver lays down what that driver leaves (`go-driver`), or the Go
driver itself does (`--peer-bin`)."""

import re
import shutil
import time

from rig.cluster import DRIVER, NODE
from rig.workload import BLOCK_DEVICE, SLEEPER, Space

from ..dead_node import SAFE_DETACH
from ..expect import expect
from . import stand_in
from .workloads import Workloads, expect_known_refusals

_KINDS = ("ext4", "xfs", "raw")
_CALLS = ("NodeStageVolume", "NodePublishVolume", "NodeGetVolumeStats", "NodeExpandVolume",
          "NodeUnpublishVolume", "NodeUnstageVolume")
# What this machine or the interface leaves out.
_LEFT_OUT = {("ext4", "NodeExpandVolume"): "a mounted ext4 grows with CAP_SYS_RESOURCE alone",
             ("raw", "NodeExpandVolume"): "a raw volume has grown once EC2 has grown it"}
OURS = "this driver"


def play(rig):
    go_driver = stand_in.name(rig)
    stand_in.install_release(rig)
    space = Space(rig, "upgrade")
    space.step(f"{go_driver} installed as a release of the Go driver's chart")
    workloads = Workloads(rig, space)
    workloads.start()
    _hand_over_volumes(space, "n1")
    workloads.watch_mounts_of(*(f"over-{kind}" for kind in _KINDS))
    _unfinished(rig, space)
    space.step("two counters, a raw counter and three volumes to hand over; one format cut off, "
               "one not begun")

    workloads.change(OURS, lambda: (rig.install(), rig.wait_installed(240)))
    shutil.rmtree(_formats(rig))
    table = {OURS: _takes_over(rig, space, workloads, OURS, "n1", "n2", "2Gi")}
    _refuses_unfinished(space)
    workloads.change(go_driver, lambda: stand_in.roll_back(rig))
    table[go_driver] = _takes_over(rig, space, workloads, go_driver, "n2", "n1", "3Gi")
    _finishes_unfinished(rig, space)
    _show(table)

    workloads.change("this driver with safe detach",
                     lambda: (rig.install(SAFE_DETACH), rig.wait_installed(240)))
    workloads.change(go_driver, lambda: stand_in.roll_back(rig))
    for node in rig.nodes:
        taints = rig.api.get("Node", node.name)["spec"].get("taints", [])
        expect(not taints, f"{node.name} has no taint after the rollback: {taints}")
    space.step("safe detach was on: the rollback left no taint")

    workloads.change(OURS, lambda: (rig.install(), rig.wait_installed(240)))
    workloads.expect_complete()
    expect_known_refusals(rig, space)
    space.remove()


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
    """Volumes that the Go driver attached and did not get formatted: one is still blank, and the
    format of the other one was killed after some writes."""
    formats = _formats(rig)
    formats.mkdir()
    for name, how in (("blank", "hold"), ("cut-off", "20")):
        (formats / "order").write_text(how)
        space.claim(name)
        space.pod(name, "n1", name, SLEEPER)
        space.api.wait(f"format of {name} failed", lambda: _failed_mount(space, name), 60)


def _formats(rig):
    """The directory that has the Go driver's formats end early on this node (`go-driver/mkfs`)."""
    return rig.node("n1").directory / "kubelet/plugins" / DRIVER / "formats"


def _failed_mount(space, name):
    return "MountVolume.MountDevice failed" in space.why(name)


def _refuses_unfinished(space):
    for name in ("blank", "cut-off"):
        said = space.api.wait(f"words about {name}", lambda: _words(space, name), 180)
        expect(not space.ready(name), f"the {name} volume is not in use")
        space.step(f"{name} volume: {said}")
    space.delete_pod("blank")
    space.api.wait("blank volume detached", lambda: space.attached("blank") is None, 60)
    space.pod("blank", "n1", "blank", SLEEPER)
    space.wait_ready("blank")
    space.delete_pod("blank")
    space.step("blank volume attached anew by this driver, formatted and in use")


def _words(space, name):
    """This driver's last refusal on the pod, None while there is none."""
    found = re.findall(r"rpc error: code = (\w+) desc = (.*)", space.why(name))
    own = [f"{code}: {text}" for code, text in found if "mkfs" not in text and code != "Internal"]
    return own[-1] if own else None


def _finishes_unfinished(rig, space):
    """The Go driver formats again what looks blank to it."""
    space.wait_ready("cut-off", 240)
    space.delete_pod("cut-off")
    space.step(f"cut-off format done again by {stand_in.name(rig)}, volume in use")


def _takes_over(rig, space, workloads, side, node, other, size):
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
    mounts = workloads.mounts()
    machine = rig.node(node)
    machine.kill_kubelet()
    machine.start_kubelet()
    rig.wait_node(machine)
    wait_for("NodeStageVolume", ("ext4", "xfs"))
    wait_for("NodePublishVolume")
    expect(workloads.mounts() == mounts, "staging and publishing again changed no mount")
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
    log = rig.log(pod["metadata"]["name"], "ebs-plugin", age)
    if side == OURS:
        succeeded = 'outcome="OK"'
    elif rig.go_driver:
        # It logs that a call came, and another line if the call failed.
        succeeded = ": called"
        expect("GRPC error" not in log, f"the Go driver answered each call on {node}: {log}")
    else:
        succeeded = " ok"
    for line in log.splitlines():
        method = re.search(r"\b(Node\w+)\b", line)
        volume = re.search(r"\bvol-[0-9a-f]+\b", line)
        if method and volume and succeeded in line:
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

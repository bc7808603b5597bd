"""How long a pod with a new claim takes to be ready, and whose time it is."""

import re
import time

from rig.cluster import CONTROLLER, NODE
from rig.workload import SLEEPER, Space

_REPEATS = 7
# The calls of one pod's start; EC2's own time is taken out of the first two.
_CONTROLLER_CALLS = ("CreateVolume", "ControllerPublishVolume")
_NODE_CALLS = ("NodeStageVolume", "NodePublishVolume")
_TOTAL = "pod with a new claim ready"
_NOTE = ("The driver's part is the time in its own calls less EC2's; the sidecars' part ends when the "
         "volume is attached, kubelet's is the rest.")


def play(rig):
    space = Space(rig, "timing")
    for number in range(_REPEATS):
        for part, seconds in _one(rig, space, f"t{number}").items():
            role = "ours" if part == _TOTAL else "part"
            rig.results.add("pod-start", "time until a pod with a new claim is ready", "s", part,
                            seconds, role=role, note=_NOTE)
    space.remove()
    memory(rig)


def _one(rig, space, name):
    started = time.monotonic()
    space.pod(f"plain-{name}", "n1", None, SLEEPER)
    space.api.wait("plain pod", lambda: space.ready(f"plain-{name}"), 60, pause=0.02)
    plain = time.monotonic() - started
    space.delete_pod(f"plain-{name}")

    started = time.monotonic()
    space.claim(name)
    space.pod(name, "n1", name, SLEEPER)
    space.api.wait("bound", lambda: space.volume_of(name), 60, pause=0.02)
    bound = time.monotonic() - started
    space.api.wait("attached", lambda: _attached(space, name), 60, pause=0.02)
    attached = time.monotonic() - started
    space.api.wait("pod ready", lambda: space.ready(name), 60, pause=0.02)
    ready = time.monotonic() - started
    volume = space.volume_of(name)
    claim = space.get("PersistentVolumeClaim", name)["spec"]["volumeName"]
    controller = _spent(rig, CONTROLLER, None, _CONTROLLER_CALLS, (volume, claim))
    node = _spent(rig, NODE, "n1", _NODE_CALLS, (volume,))
    ec2 = _ec2(rig)
    space.delete_pod(name)
    ours = max(controller - ec2, 0.0) + node
    return {
        "plain pod ready": plain,
        "claim bound": bound,
        "volume attached": attached,
        _TOTAL: ready,
        "of it EC2 (simulated)": ec2,
        "of it the driver's calls": ours,
        "of it sidecars and controllers": max(attached - controller, 0.0),
        "of it kubelet": max(ready - attached - node, 0.0),
    }


def _attached(space, claim):
    name = space.get("PersistentVolumeClaim", claim)["spec"].get("volumeName")
    for one in space.api.list("VolumeAttachment"):
        if one["spec"]["source"].get("persistentVolumeName") == name:
            return one.get("status", {}).get("attached")
    return False


def _spent(rig, app, node, methods, names):
    """Seconds in the driver's own calls about one volume, from its logs."""
    total = 0.0
    for pod in rig.driver_pods(app, node):
        for line in rig.log(pod["metadata"]["name"], "ebs-plugin", "--since=2m").splitlines():
            if any(name in line for name in names) and any(f"/{method}" in line for method in methods):
                found = re.search(r'milliseconds"?[=:]"?([0-9.]+)', line)
                total += float(found.group(1)) / 1000 if found else 0.0
    return total


def _ec2(rig):
    """Seconds that the simulator takes to create and attach a volume."""
    model = rig.simulator.request("/v1/latency")
    parts = (model.get(name) or {} for name in ("volume_create", "attach"))
    return sum(one.get("fixed_ms", one.get("p50_ms", 0)) for one in parts) / 1000


def memory(rig):
    """Resident memory of each container of the driver's pods."""
    for program in ("ebs-csi-controller", "ebs-csi-node-lifecycle", "ebs-csi-node-agent",
                    "ebs-csi-mount-helper", "csi-provisioner", "csi-attacher", "csi-resizer",
                    "csi-snapshotter"):
        for node in rig.nodes:
            found = node.processes(program)
            if found:
                resident = sum(_resident(pid) for pid in found)
                role = "ours" if program == "ebs-csi-controller" else "part"
                rig.results.add("container-memory", "resident memory of each container", "MiB",
                                program, resident, role=role,
                                note="The sum of a container's processes: shared pages count twice.")


def _resident(pid):
    for line in open(f"/proc/{pid}/status", encoding="utf-8"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0

"""How long a pod with a new claim takes to be ready and whose time it is, how long a node's pod
takes to be replaced, and the memory of each container."""

import re
import time

from rig.cluster import CONTROLLER, NAMESPACE, NODE
from rig.workload import SLEEPER, Space

from .memory import memory

_REPEATS = 7
# The calls of one pod's start; EC2's own time is taken out of the first two.
CONTROLLER_CALLS = ("CreateVolume", "ControllerPublishVolume")
NODE_CALLS = ("NodeStageVolume", "NodePublishVolume")
_TOTAL = "pod with a new claim ready"
_NOTE = ("The driver's part is the time in its own calls less EC2's; the sidecars' part ends when the "
         "volume is attached, kubelet's is the rest.")
_RESTART_NOTE = (
    "One pod at a time, deleted and made anew as a rollout does it. A computation, not a measurement: "
    "with `maxUnavailable: 10%` a tenth of the nodes is replaced at a time, so on ten nodes or more ten "
    "replacements follow each other, and a rollout takes at least ten times this time, whatever the "
    "number of nodes. What the DaemonSet controller needs for its requests, and a node needs to pull "
    "an image, comes on top.")


def play(rig):
    space = Space(rig, "timing")
    for number in range(_REPEATS):
        for part, seconds in _one(rig, space, f"t{number}").items():
            role = "ours" if part == _TOTAL else "part"
            rig.results.add("pod-start", "time until a pod with a new claim is ready", "s", part,
                            seconds, role=role, note=_NOTE)
    space.remove()
    for _ in range(_REPEATS):
        rig.results.add("node-pod-restart", "time until the pod of a node is replaced", "s",
                        "from the deletion until the next pod is ready and registered with kubelet",
                        _restart(rig, "n1"), role="ours", note=_RESTART_NOTE)
    space.step(f"pod of a node replaced {_REPEATS} times")
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
    space.api.wait("attached", lambda: space.attached(name), 60, pause=0.02)
    attached = time.monotonic() - started
    space.api.wait("pod ready", lambda: space.ready(name), 60, pause=0.02)
    ready = time.monotonic() - started
    volume = space.volume_of(name)
    claim = space.get("PersistentVolumeClaim", name)["spec"]["volumeName"]
    controller = sum(spent(rig, CONTROLLER, None, CONTROLLER_CALLS, (volume, claim)))
    node = sum(spent(rig, NODE, "n1", NODE_CALLS, (volume,)))
    ec2 = ec2_seconds(rig)
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


def _restart(rig, node):
    """Seconds until the next pod of a node serves kubelet."""
    (former,) = rig.driver_pods(NODE, node)
    started = time.monotonic()
    rig.api.delete("Pod", former["metadata"]["name"], NAMESPACE)
    rig.api.wait("next pod", lambda: _next(rig, node, former), 60, pause=0.02)
    rig.api.wait("node pods ready", rig.node_pods_ready, 60, pause=0.02)
    (pod,) = rig.driver_pods(NODE, node)
    rig.api.wait("registered", lambda: "kubelet has registered the driver" in rig.log(
        pod["metadata"]["name"], "ebs-plugin"), 60, pause=0.02)
    return time.monotonic() - started


def _next(rig, node, former):
    pods = rig.driver_pods(NODE, node)
    return pods and pods[0]["metadata"]["uid"] != former["metadata"]["uid"]


def spent(rig, app, node, methods, names):
    """Seconds of the driver's first call of each method about each of these volumes, from its logs.
    No pod waits for the later ones: external-attacher repeats ControllerPublishVolume when it has
    not seen its own update yet."""
    found = {}
    for pod in rig.driver_pods(app, node):
        for line in rig.log(pod["metadata"]["name"], "ebs-plugin", "--since=10m").splitlines():
            method = next((one for one in methods if f"/{one}" in line), None)
            about = re.search(r"vol-[0-9a-f]+", line) or re.search(r"pvc-[0-9a-f-]+", line)
            duration = re.search(r'milliseconds"?[=:]"?([0-9.]+)', line)
            if method and about and duration and any(name in line for name in names):
                found.setdefault((method, about.group()), float(duration.group(1)) / 1000)
    return list(found.values())


def ec2_seconds(rig):
    """Seconds that the simulator takes to create and attach a volume."""
    model = rig.simulator.request("/v1/latency")
    parts = (model.get(name) or {} for name in ("volume_create", "attach"))
    return sum(one.get("fixed_ms", one.get("p50_ms", 0)) for one in parts) / 1000

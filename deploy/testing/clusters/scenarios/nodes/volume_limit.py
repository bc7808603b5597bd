"""As many volumes on one node as fit: the next pod waits, and a limit that changes while the
node-agent runs reaches the scheduler."""

import time
from pathlib import Path

from rig.workload import SLEEPER, Space, pod_spec

from ..expect import expect

_NODE = 3
_LARGE_NODE = 4
# Where the kernel has its PCI devices and the links to them; the node-agent counts network adapters
# there. The scenario mounts directories of its own over both.
_SYSFS = {"pci-devices": "/sys/devices/pci0000:00", "pci-links": "/sys/bus/pci/devices"}
_MADE_UP = "var/lib/rig-pci"
_VALUES = {"node": {
    "volumes": [{"name": name, "hostPath": {"path": f"/{_MADE_UP}/{name}", "type": "DirectoryOrCreate"}}
                for name in _SYSFS],
    "volumeMounts": [{"name": name, "mountPath": path} for name, path in _SYSFS.items()]}}
# m5.large: 27 slots less the root volume's, and less one for each further network adapter.
_FREE = 26
# m7i.24xlarge: 64 slots less the root volume's.
_FREE_ON_LARGE = 63
_PER_POD = 5
_LOWERED = 7


def play(rig):
    for path in _SYSFS.values():
        if not Path(path).is_dir():
            print(f"skipped: volume-limit: this machine has no {path}")
            return
    (node,) = rig.join(_NODE)
    rig.wait_installed(240)
    space = Space(rig, "volume-limit")
    _large_node(rig, space)
    adapters = node.root() / _MADE_UP
    _adapter(adapters, 1)
    rig.install(_VALUES)
    rig.wait_installed(240)
    _wait_count(rig, space, node, _FREE)
    kubelet, agents = node.kubelet(), node.processes("ebs-csi-node-agent")

    _adapter(adapters, 2)
    _wait_count(rig, space, node, _FREE - 1)
    expect(node.processes("ebs-csi-node-agent") == agents, "the same node-agent lowered the limit")
    space.step("a network adapter that takes a slot: the limit is lower without a restart")

    pods = _fill(space, node, _FREE - 1, "data")
    attached = _attached(rig, node)
    expect(attached == _FREE - 1, f"EC2 has {_FREE - 1} volumes attached, not {attached}")
    space.step(f"{_FREE - 1} volumes in {len(pods)} pods on one node")
    said = _kept_waiting(space, node, "next")
    space.step(f"next pod waits: {said}")

    (adapters / "pci-links/2").unlink()
    _wait_count(rig, space, node, _FREE)
    space.wait_ready("next", 400)
    space.step("adapter gone: the limit is higher, and the pod that waited is ready")
    said = _kept_waiting(space, node, "one-more")
    space.step(f"next pod waits: {said}")
    space.delete_pod("next")
    space.wait_ready("one-more", 400)
    space.step("a volume left the node: the pod that waited is ready")

    rig.install({"node": {**_VALUES["node"], "volumeAttachLimit": _LOWERED}})
    rig.wait_installed(240)
    for one in rig.nodes:
        _wait_count(rig, space, one, _LOWERED)
    space.step(f"node.volumeAttachLimit={_LOWERED}: on all nodes, with volumes mounted beyond it")
    for name in pods:
        expect(space.ready(name), f"{name} still runs")
    expect(node.kubelet() == kubelet, "kubelet was not started anew")
    space.remove(300)
    rig.leave(node)
    rig.install()
    rig.wait_installed(240)


def _large_node(rig, space):
    """Fills a node whose limit is above 60; its volumes and the node are gone afterwards."""
    (node,) = rig.join(_LARGE_NODE)
    rig.wait_installed(240)
    _wait_count(rig, space, node, _FREE_ON_LARGE)
    pods = _fill(space, node, _FREE_ON_LARGE, "many")
    attached = _attached(rig, node)
    expect(attached == _FREE_ON_LARGE, f"EC2 has {_FREE_ON_LARGE} volumes attached, not {attached}")
    space.step(f"{_FREE_ON_LARGE} volumes in {len(pods)} pods on one node")
    said = _kept_waiting(space, node, "too-many")
    space.step(f"next pod waits: {said}")
    for name in (*pods, "too-many"):
        rig.api.delete("Pod", name, space.name)
    rig.api.wait("all volumes detached", lambda: not _attached(rig, node), 240)
    space.step("pods deleted: EC2 has none of the volumes attached")
    rig.leave(node)


def _adapter(directory, number):
    """An Elastic Network Adapter as sysfs shows it."""
    device, links = directory / "pci-devices" / str(number), directory / "pci-links"
    device.mkdir(parents=True)
    links.mkdir(exist_ok=True)
    (device / "device").write_text("0xec20\n")
    (device / "vendor").write_text("0x1d0f\n")
    (links / str(number)).symlink_to(f"../../..{_SYSFS['pci-devices'].removeprefix('/sys')}/{number}")


def _wait_count(rig, space, node, count):
    started = time.monotonic()
    rig.api.wait(f"CSINode {node.name} says {count}",
                 lambda: rig.volume_counts(node.name) == [count], 60)
    space.step(f"CSINode {node.name} says {count}, after {time.monotonic() - started:.1f} s")


def _fill(space, node, count, prefix):
    """Pods with so many volumes in all; returns their names."""
    pods = []
    for first in range(0, count, _PER_POD):
        claims = [f"{prefix}-{number}" for number in range(first, min(first + _PER_POD, count))]
        for claim in claims:
            space.claim(claim)
        spec = pod_spec(SLEEPER, node.name, None, False)
        spec["volumes"] = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
        spec["containers"][0]["volumeMounts"] = [{"name": one, "mountPath": f"/{one}"} for one in claims]
        pods.append(f"pod-{prefix}-{first}")
        space.start(pods[-1], spec)
    for name in pods:
        space.wait_ready(name, 240)
    return pods


def _kept_waiting(space, node, name):
    """Starts a pod with a new volume that no longer fits; returns the scheduler's words."""
    space.claim(name)
    space.pod(name, node.name, name, SLEEPER)
    said = space.api.wait(f"words about {name}", lambda: _scheduler(space, name), 60)
    expect("exceed max volume count" in said, f"the scheduler names the limit: {said}")
    expect(space.node_of(name) is None, f"{name} has no node")
    return said


def _scheduler(space, name):
    said = [line.partition(": ")[2] for line in space.why(name).splitlines()
            if line.strip().startswith("FailedScheduling")]
    return said[-1] if said else None


def _attached(rig, node):
    """How many volumes EC2 has attached to the node's instance, the root volume left out."""
    (realm,) = rig.simulator.request("/v1/state")["realms"]
    return sum(one["instance"] == node.instance for volume in realm["volumes"]
               if not volume["root"] for one in volume["attachments"])

"""A node that joins with the driver's startup taint and another driver's: pods with volumes start
only once kubelet knows how many volumes fit."""

import time

from rig.node import STARTUP_TAINT
from rig.workload import SLEEPER, Space, pod_spec

from .expect import expect

_FOREIGN = {"key": "other.test/agent-not-ready", "effect": "NoExecute"}


def play(rig):
    space = Space(rig, "new-node")
    node = rig.node("n2")
    rig.wait_installed()
    node.cut_power()
    rig.api.delete("Node", node.name)
    rig.api.wait("Node gone", lambda: not rig.api.get("Node", node.name), 60)
    rig.api.wait("CSINode gone", lambda: not rig.api.get("CSINode", node.name), 60)
    # A new machine has none; an old one would have kubelet register twice.
    for socket in (node.directory / "kubelet/plugins_registry").iterdir():
        socket.unlink()
    space.claim("waits")
    spec = pod_spec(SLEEPER, node.name, "waits", False)
    spec["tolerations"] = [{"key": _FOREIGN["key"], "operator": "Exists"}]
    space.start("waits", spec)

    own = node.taints
    node.taints = [*own, _FOREIGN]
    node.start()
    node.taints = own
    seen = _follow(rig, space, node.name)
    space.step("node joined with both startup taints")
    space.step(f"startup taint taken off {seen['untainted'] - seen['counted']:.2f} s after CSINode had the count")
    expect(seen["counted"] <= seen["untainted"] <= seen["scheduled"],
           "first the count, then the taint, then the pod")
    space.wait_ready("waits")
    expect(rig.tainted(node.name, _FOREIGN["key"]), "the other driver's taint is still there")
    space.step("pod with a volume ready, the other driver's taint untouched")
    _take_off(rig, node.name)
    space.delete_pod("waits")
    rig.wait_node(node)
    rig.wait_installed(240)
    space.remove()


def _follow(rig, space, name):
    """When CSINode had the count, when the taint was gone, and when the pod had a node."""
    seen, deadline = {}, time.monotonic() + 180
    joined = False
    while "scheduled" not in seen:
        expect(time.monotonic() < deadline, f"the pod has a node within 180 s: {seen}")
        # Asked in this order, what is seen later can only be newer.
        scheduled = space.node_of("waits")
        if rig.registered(name):
            seen.setdefault("counted", time.monotonic())
        if rig.api.get("Node", name):
            tainted = rig.tainted(name, STARTUP_TAINT)
            joined = joined or tainted
            if joined and not tainted:
                expect(rig.registered(name), "the taint stays until the count is known")
                untainted = seen.setdefault("untainted", time.monotonic())
                seen.setdefault("counted", untainted)
        expect(not scheduled or "untainted" in seen, "no pod gets a node with the startup taint")
        if scheduled:
            seen.setdefault("scheduled", time.monotonic())
        time.sleep(0.02)
    return seen


def _take_off(rig, name):
    taints = [one for one in rig.api.get("Node", name)["spec"].get("taints", [])
              if one["key"] != _FOREIGN["key"]]
    rig.api.patch("Node", name, None, {"spec": {"taints": taints}})

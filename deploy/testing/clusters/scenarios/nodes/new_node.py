"""Three nodes that join at the same moment with the driver's startup taint and another driver's:
pods with volumes start only once kubelet knows how many volumes fit."""

import time

from rig import audit
from rig.cluster import ACCOUNTS
from rig.node import STARTUP_TAINT
from rig.workload import SLEEPER, Space, pod_spec

from ..expect import expect

_FOREIGN = {"key": "other.test/agent-not-ready", "effect": "NoExecute"}
_JOINING = (2, 3, 4)


def play(rig):
    space = Space(rig, "new-node")
    rig.wait_installed()
    rig.leave(rig.node("n2"))
    for number in _JOINING:
        name = f"waits-n{number}"
        space.claim(name)
        spec = pod_spec(SLEEPER, f"n{number}", name, False)
        spec["tolerations"] = [{"key": _FOREIGN["key"], "operator": "Exists"}]
        space.start(name, spec)

    since = audit.now()
    nodes = rig.join(*_JOINING, taints=[_FOREIGN])
    space.step(f"kubelets of {len(nodes)} new nodes started")
    for name, seen in _follow(rig, space, [node.name for node in nodes]).items():
        expect(seen["counted"] <= seen["untainted"] <= seen["scheduled"],
               f"{name}: first the count, then the taint, then the pod")
        space.step(f"{name}: startup taint gone {seen['untainted'] - seen['counted']:.2f} s after "
                   f"CSINode had the count {_count(rig, name)}")
    for node in nodes:
        space.wait_ready(f"waits-{node.name}")
        expect(rig.tainted(node.name, _FOREIGN["key"]), "the other driver's taint is still there")
    space.step("pods with volumes ready, the other driver's taints untouched")
    _requests(rig, since, nodes)

    for node in nodes:
        _take_off(rig, node.name)
        space.delete_pod(f"waits-{node.name}")
        rig.wait_node(node)
    rig.wait_installed(240)
    space.remove()
    rig.leave(*nodes[1:])
    rig.wait_installed(240)


def _follow(rig, space, names):
    """By node: when CSINode had the count, when the taint was gone, when the pod had a node."""
    seen, deadline = {name: {} for name in names}, time.monotonic() + 180
    while any("scheduled" not in one for one in seen.values()):
        expect(time.monotonic() < deadline, f"the pods have nodes within 180 s: {seen}")
        for name in names:
            _look(rig, space, name, seen[name])
    return seen


def _look(rig, space, name, seen):
    # Asked in this order, what is seen later can only be newer.
    scheduled = space.node_of(f"waits-{name}")
    if rig.registered(name):
        seen.setdefault("counted", time.monotonic())
    if rig.api.get("Node", name):
        tainted = rig.tainted(name, STARTUP_TAINT)
        seen["joined"] = seen.get("joined") or tainted
        if seen["joined"] and not tainted:
            expect(rig.registered(name), "the taint stays until the count is known")
            untainted = seen.setdefault("untainted", time.monotonic())
            seen.setdefault("counted", untainted)
    expect(not scheduled or "untainted" in seen, "no pod gets a node with the startup taint")
    if scheduled:
        seen.setdefault("scheduled", time.monotonic())


def _count(rig, name):
    (count,) = rig.volume_counts(name)
    return count


def _requests(rig, since, nodes):
    """What the driver's programs wrote to make these nodes usable."""
    counts = audit.counts(rig, since, ACCOUNTS)
    patches = counts["ebs-csi-node-lifecycle", "patch", "nodes"]
    expect(patches == len(nodes), f"one patch for each node that joined, not {patches}")
    of_driver = sum(number for (program, verb, _), number in counts.items()
                    if program.startswith("ebs-csi-") and verb != "watch")
    for label, number in (("node-lifecycle: patches of Nodes", patches),
                          ("all programs of the driver", of_driver)):
        rig.results.add("requests-per-node", "requests to the API server when a node joins",
                        "requests", label, number / len(nodes),
                        role="ours" if label.startswith("all") else "part",
                        note="From the API server's audit log, three nodes at once. Leases and "
                             "watches are left out. The controller and the programs on the node "
                             "hold no token and send none.")
    for (program, verb, resource), number in sorted(counts.items()):
        print(f"    {program:<28} {verb:<8} {resource:<32} {number:>4}", flush=True)


def _take_off(rig, name):
    taints = [one for one in rig.api.get("Node", name)["spec"].get("taints", [])
              if one["key"] != _FOREIGN["key"]]
    rig.api.patch("Node", name, None, {"spec": {"taints": taints}})

"""Nodes that die or only seem to: workloads move when EC2 proves the death, and never before."""

import time

from rig import network
from rig.cluster import CONTROLLER, NAMESPACE
from rig.workload import Space, pod_spec

from .expect import expect

# The pod says what it wrote only once it is on the disk, so each number that its log shows is
# synced.
_COUNTING = ("i=$(tail -n 1 /data/log 2>/dev/null || echo 0); echo start $i >>/data/starts; "
             "while :; do i=$((i+1)); echo $i >>/data/log; sync; echo $i; sleep .1; done")
_TAINT = "node.kubernetes.io/out-of-service"
SAFE_DETACH = {"safeDetach": {"gate": True, "mode": "enforce", "failover": "prove-first"}}
_READY_ELSEWHERE = 40


def play(rig):
    rig.install(SAFE_DETACH)
    rig.wait_installed()
    rig.wait_controllers_apart()
    space = Space(rig, "dead-node")
    node = leader(rig)
    space.step(f"external-attacher and node-lifecycle lead from {node}")
    space.stateful_set("counter", 1, _COUNTING, prefer=node)
    space.wait_ready("counter-0")
    expect(space.node_of("counter-0") == node, "the pod is on the leaders' node")
    # First, while the leaders are on this node: the other cases move them.
    other = _power_cut(rig, space, node)
    returns(rig, space, node)
    _running_kubelet_dead(rig, space, other)
    _partitioned(rig, space, other)
    _tolerant_pod(rig, space, node)
    _opted_out_pod(rig, space, node)
    space.remove()
    rig.install()
    rig.wait_installed()


def leader(rig):
    """The node from which node-lifecycle leads, with external-attacher's leader moved there."""
    rig.api.wait("leaders elected", lambda: all(_holder(rig, lease) for lease in _LEASES), 60)
    own, attacher = (_holder(rig, lease) for lease in _LEASES)
    node = _node_of_pod(rig, own)
    if _node_of_pod(rig, attacher) != node:
        # Without a node for the pod that replaces it, the other replica takes over.
        # The leader's node comes back last: the new pod takes the first node that is there.
        names = sorted((one.name for one in rig.nodes), key=lambda name: name == node)
        rig.kubectl("cordon", *names)
        rig.api.delete("Pod", attacher, NAMESPACE)
        rig.api.wait("external-attacher led by the other replica",
                     lambda: _holder(rig, _LEASES[1]) == own, 60)
        rig.kubectl("uncordon", *names)
        rig.api.wait("controller ready", rig.controller_ready, 120)
        rig.wait_controllers_apart()
    return node


_LEASES = ("ebs-csi-node-lifecycle", "external-attacher-leader-ebs-csi-aws-com")


def _holder(rig, lease):
    """The pod that holds a lease; sidecars name the pod, node-lifecycle the pod and more."""
    found = rig.api.get("Lease", lease, NAMESPACE)
    holder = (found or {}).get("spec", {}).get("holderIdentity") or ""
    for pod in rig.driver_pods(CONTROLLER):
        if holder.startswith(pod["metadata"]["name"]):
            return pod["metadata"]["name"]
    return None


def _node_of_pod(rig, name):
    pod = rig.api.get("Pod", name, NAMESPACE) if name else None
    return pod["spec"].get("nodeName") if pod else None


def _detaches(rig):
    return len(rig.simulator.calls("DetachVolume"))


def _stays(rig, space, node, what, seconds=30):
    """Nothing moves for so long while the instance runs."""
    rig.wait_node(rig.node(node), ready=False)
    space.step(f"{what}: node not ready")
    before = _detaches(rig)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        expect(_detaches(rig) == before, "nothing is detached while the instance runs")
        expect(not _tainted(rig, node), "a running node gets no out-of-service taint")
        time.sleep(1)
    space.step(f"{what}: no detach and no taint for {seconds} s while the instance runs")


def _running_kubelet_dead(rig, space, node):
    count = _last(space)
    rig.node(node).kill_kubelet()
    _stays(rig, space, node, "kubelet alone dead")
    rig.node(node).start_kubelet()
    rig.wait_node(rig.node(node))
    _goes_on(rig, space, node, count, "kubelet back")


def _partitioned(rig, space, node):
    count = _last(space)
    network.cut(rig.node(node).number)
    _stays(rig, space, node, "partition")
    network.join(rig.node(node).number)
    rig.wait_node(rig.node(node))
    _goes_on(rig, space, node, count, "partition healed")


def _goes_on(rig, space, node, count, what):
    space.wait_ready("counter-0")
    expect(space.node_of("counter-0") == node, "the pod stayed")
    space.api.wait("the pod writes on", lambda: _last(space) > count, 30)
    rig.api.wait("controller ready", rig.controller_ready, 120)
    space.step(f"{what}: the same pod writes on, controller ready")


def _power_cut(rig, space, node):
    """Cuts the power of the node that the pod and the leaders run on; returns where the pod went."""
    _synced(space)
    rig.node(node).cut_power()
    rig.simulator.power(node, "stop")
    last = _logged(rig, space, node)
    started = time.monotonic()

    def reached(what, role="part"):
        seconds = time.monotonic() - started
        space.step(f"{what} {seconds:.1f} s after the power failure")
        rig.results.add("failover-steps", "time from a power failure until each step, safe detach enforced",
                        "s", what, seconds, role=role)
        return seconds

    rig.wait_node(rig.node(node), ready=False)
    reached("node not ready")
    space.step(f"last number seen {last}")
    rig.api.wait("taint", lambda: _tainted(rig, node), 60)
    reached("out-of-service taint")
    other = "n2" if node == "n1" else "n1"
    rig.api.wait("pod elsewhere", lambda: space.node_of("counter-0") == other, 60)
    reached("pod scheduled on the other node")
    space.wait_ready("counter-0", 60)
    seconds = reached("pod ready on the other node", role="ours")
    numbers = [int(line) for line in space.run("counter-0", "cat /data/log").split()]
    expect(numbers == list(range(1, len(numbers) + 1)), "the numbers have no gap")
    expect(len(numbers) >= last, f"no synced number is lost: {len(numbers)} of {last}")
    expect(seconds <= _READY_ELSEWHERE, f"ready elsewhere within {_READY_ELSEWHERE} s, not {seconds:.1f}")
    return other


def _tolerant_pod(rig, space, node):
    """A pod that tolerates the driver's taint stays on its node, and the taint goes nevertheless."""
    uid = _start(space, node, "tolerant", lambda spec: spec.update(tolerations=[{"operator": "Exists"}]))
    _off(rig, node)
    rig.api.wait("taint", lambda: _tainted(rig, node), 60)
    _on(rig, node)
    rig.api.wait("taint gone", lambda: not _tainted(rig, node), 60)
    space.step("taint taken off a node whose pod tolerates it")
    _is_same(space, node, "tolerant", uid)


def _opted_out_pod(rig, space, node):
    """A pod with failover "off" keeps the taint, which would evict it, off its node; another pod of
    the node moves."""
    uid = _start(space, node, "kept", lambda spec: None)
    off = {"metadata": {"annotations": {"ebs.csi.aws.com/failover": "off"}}}
    rig.api.patch("Pod", "kept", space.name, off)
    moved = _start(space, node, "moved", lambda spec: None)
    _off(rig, node)
    rig.api.wait("the other pod gone", lambda: _uid(space, "moved") != moved, 60)
    expect(_uid(space, "kept") == uid, "the pod that is opted out stays")
    expect(not _tainted(rig, node), "the node gets no taint")
    space.step("a pod with failover off stays, the other pod of its node is gone")
    _on(rig, node)
    expect(not _tainted(rig, node), "the node gets no taint")
    _is_same(space, node, "kept", uid)


def _start(space, node, name, change):
    space.claim(name)
    spec = pod_spec(_COUNTING, node, name, False)
    change(spec)
    space.start(name, spec)
    space.wait_ready(name)
    return _uid(space, name)


def _uid(space, pod):
    return (space.get("Pod", pod) or {}).get("metadata", {}).get("uid")


def _off(rig, node):
    rig.node(node).cut_power()
    rig.simulator.power(node, "stop")
    rig.wait_node(rig.node(node), ready=False)


def _on(rig, node):
    rig.simulator.power(node, "start")
    rig.api.wait("instance running", lambda: rig.simulator.instance_state(node) == "running", 30)
    rig.node(node).start()
    rig.wait_node(rig.node(node))


def _is_same(space, node, name, uid):
    space.wait_ready(name)
    expect(_uid(space, name) == uid and space.node_of(name) == node, "the same pod runs there")
    numbers = [int(line) for line in space.run(name, "cat /data/log").split()]
    expect(numbers == list(range(1, len(numbers) + 1)), "its numbers have no gap")
    space.delete_pod(name)


def returns(rig, space, node):
    _on(rig, node)
    space.step(f"{node} back")
    rig.api.wait("taint gone", lambda: not _tainted(rig, node), 60)
    expect(not rig.node(node).volume_mounts(), "no volume is mounted on the node that came back")
    space.step("taint taken off")
    rig.wait_installed()


def _tainted(rig, node):
    return rig.tainted(node, _TAINT)


def _last(space):
    return int(space.run("counter-0", "tail -n 1 /data/log"))


def _synced(space):
    space.api.wait("some numbers", lambda: _last(space) > 20, 60)


def _logged(rig, space, node):
    """The last number in the container's log, which lies on the dead node's own disk."""
    logs = (rig.node(node).directory / "log/pods").glob(f"{space.name}_counter-0_*/main/*.log")
    numbers = [int(line.split()[-1]) for log in logs for line in log.read_text().splitlines()
               if line.split() and line.split()[-1].isdigit()]
    return max(numbers)

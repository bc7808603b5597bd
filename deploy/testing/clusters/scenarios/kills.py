"""Each process killed with volumes mounted; what was asked for still happens, and no data is lost."""

import datetime
import os
import signal
import time

from rig import control_plane
from rig.cluster import CONTROLLER, NAMESPACE, NODE
from rig.images import SIDECARS
from rig.workload import SLEEPER, Space

from .expect import expect


def play(rig):
    space = Space(rig, "kills")
    for kill in (_agent, _helper, _node_processes, _creating, _attaching, _sidecars, _kubelet,
                 _containerd, _api_server, _pods_under_load, _emptied_registration, _copied, _drain,
                 _rollout, _reboot):
        kill(rig, space)
    space.remove()


def _mounted(space, name, node="n1", kind="ebs-ext4"):
    space.claim(name, kind=kind)
    space.pod(name, node, name)
    space.wait_ready(name)


def _writes_on(space, name):
    before = int(space.run(name, "wc -l </data/log"))
    space.api.wait(f"{name} writes on", lambda: int(space.run(name, "wc -l </data/log")) > before, 20)


def _moves(space, name, lines):
    """Deletes a pod and starts it on the other node with all that it wrote."""
    space.delete_pod(name)
    space.pod(name, "n2", name, SLEEPER)
    space.wait_ready(name)
    found = int(space.run(name, "wc -l </data/log"))
    expect(found >= lines, f"{name}: {found} of {lines} lines are on the other node")
    space.delete_pod(name)


def _lines(space, name):
    return int(space.run(name, "wc -l </data/log"))


def kill_program(rig, node, program):
    """kill -9 of all processes of a program on a node; they have at least one."""
    found = rig.node(node).processes(program)
    expect(found, f"{program} runs on {node}")
    _kill_found(found)


def _kill_found(processes):
    for pid in processes:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # It ended with another one.


def node_pod_recovers(rig):
    # The status is older than the kill for a moment.
    time.sleep(2)
    rig.api.wait("node pods ready", rig.node_pods_ready, 120)


def _registration(rig, what):
    """Notes how long after its start kubelet had registered the newest agent on n1."""
    (pod,) = rig.driver_pods(NODE, "n1")
    times = []
    for text in ("this node", "kubelet has registered the driver"):
        lines = [line for line in rig.log(pod["metadata"]["name"], "ebs-plugin").splitlines()
                 if text in line]
        expect(lines, f"the agent's log has {text!r} after: {what}")
        stamp = lines[0].split()[0].replace("Z", "+00:00")
        times.append(datetime.datetime.fromisoformat(stamp))
    rig.results.add("registration", "time from the node-agent's start until kubelet registered it",
                    "s", what, (times[1] - times[0]).total_seconds(),
                    role="ours" if what == "node-agent killed" else "part")


def _agent(rig, space):
    _mounted(space, "agent")
    kill_program(rig, "n1", "ebs-csi-node-agent")
    space.claim("after-agent")
    space.pod("after-agent", "n1", "after-agent")
    space.wait_ready("after-agent")
    _writes_on(space, "agent")
    space.delete_pod("after-agent")
    _moves(space, "agent", _lines(space, "agent"))
    node_pod_recovers(rig)
    _registration(rig, "node-agent killed")
    space.step("node-agent killed: mounted volume written on, new pod started, old one moved")


def _helper(rig, space):
    _mounted(space, "helper", kind="ebs-xfs")
    kill_program(rig, "n1", "ebs-csi-mount-helper")
    _writes_on(space, "helper")
    space.claim("after-helper")
    space.pod("after-helper", "n1", "after-helper")
    space.wait_ready("after-helper")
    space.delete_pod("after-helper")
    _moves(space, "helper", _lines(space, "helper"))
    node_pod_recovers(rig)
    space.step("mount-helper killed: mounted volume written on, new pod started, old one moved")


def _node_processes(rig, space):
    _mounted(space, "together")
    node = rig.node("n1")
    kill_program(rig, "n1", "ebs-csi-mount-helper")
    kill_program(rig, "n1", "ebs-csi-node-agent")
    node.kill_kubelet()
    time.sleep(1)
    node.start_kubelet()
    rig.wait_node(node)
    _writes_on(space, "together")
    _moves(space, "together", _lines(space, "together"))
    node_pod_recovers(rig)
    space.step("kubelet, node-agent and mount-helper killed together: the same")


def _kill_everywhere(rig, *programs):
    """kill -9 of these programs on both nodes; one of them may be starting anew just now."""
    for node in rig.nodes:
        for program in programs:
            _kill_found(node.processes(program))


def _ready_after_kill_during(rig, space, name, action, slow):
    """Kills all controllers between EC2's acceptance of a call and its end, and waits for the pod."""
    before = len(rig.simulator.calls(action))
    rig.simulator.latency(**{slow: {"fixed_ms": 5000}})
    space.claim(name)
    space.pod(name, "n1", name)
    rig.api.wait(action, lambda: len(rig.simulator.calls(action)) > before, 60)
    _kill_everywhere(rig, "ebs-csi-controller")
    space.wait_ready(name, 180)
    rig.simulator.latency(**{slow: {"fixed_ms": 50}})


def _expect_one_volume_each(rig, space):
    live = rig.simulator.invariants()["live"]["volumes"]
    claims = len(space.api.list("PersistentVolumeClaim", space.name))
    expect(live == claims, f"one volume for each claim: {live} of {claims}")


def _creating(rig, space):
    _ready_after_kill_during(rig, space, "creating", "CreateVolume", "volume_create")
    _expect_one_volume_each(rig, space)
    space.delete_pod("creating")
    space.step("all controllers killed while EC2 makes a volume: one volume, pod ready")


def _attaching(rig, space):
    _ready_after_kill_during(rig, space, "attaching", "AttachVolume", "attach")
    space.delete_pod("attaching")
    space.step("all controllers killed while EC2 attaches a volume: pod ready")


def _sidecars(rig, space):
    _kill_everywhere(rig, *SIDECARS)
    _mounted(space, "sidecars")
    space.delete_pod("sidecars")
    rig.api.wait("controller ready", rig.controller_ready, 180)
    space.step("all sidecars killed: new pod ready")


def _kubelet(rig, space):
    _mounted(space, "kubelet")
    node = rig.node("n1")
    node.kill_kubelet()
    time.sleep(1)
    node.start_kubelet()
    rig.wait_node(node)
    _writes_on(space, "kubelet")
    rig.api.wait("registered again", lambda: rig.registered("n1"), 30)
    _moves(space, "kubelet", _lines(space, "kubelet"))
    space.step("kubelet killed: mounted volume written on, driver registered, pod moved")


def _containerd(rig, space):
    _mounted(space, "containerd")
    rig.node("n1").restart_containerd()
    _mounted(space, "after-containerd")
    space.delete_pod("after-containerd")
    _writes_on(space, "containerd")
    _moves(space, "containerd", _lines(space, "containerd"))
    node_pod_recovers(rig)
    space.step("containerd killed: mounted volume written on, new pod started, old one moved")


def _api_server(rig, space):
    """The API server ends while EC2 makes a volume, and comes back after the volume is there."""
    _mounted(space, "api-server")
    lines = _lines(space, "api-server")
    before = len(rig.simulator.calls("CreateVolume"))
    rig.simulator.latency(volume_create={"fixed_ms": 3000})
    space.claim("during")
    space.pod("during", "n1", "during")
    rig.api.wait("CreateVolume", lambda: len(rig.simulator.calls("CreateVolume")) > before, 60)
    rig.state.stop("apiserver", first=signal.SIGKILL)
    time.sleep(6)
    control_plane.start_api_server(rig)
    rig.api.wait("API server ready", rig.api.ready, 120)
    rig.simulator.latency(volume_create={"fixed_ms": 50})
    space.wait_ready("during", 180)
    _expect_one_volume_each(rig, space)
    space.delete_pod("during")
    expect(_lines(space, "api-server") > lines + 20, "the mounted volume was written on meanwhile")
    rig.api.wait("controller ready", rig.controller_ready, 180)
    node_pod_recovers(rig)
    _moves(space, "api-server", lines)
    space.step("API server killed while EC2 makes a volume: one volume, pod ready, old one moved")


def _pods_under_load(rig, space):
    """All pods of the driver are deleted while twelve pods start, and again while these end."""
    names = [f"load-{number}" for number in range(12)]
    rig.simulator.latency(volume_create={"fixed_ms": 1000}, attach={"fixed_ms": 1000})
    for number, name in enumerate(names):
        space.claim(name, kind=("ebs-ext4", "ebs-xfs")[number % 2])
        space.pod(name, ("n1", "n2")[number // 6], name)
    rig.api.wait("the first volume", lambda: any(space.volume_of(name) for name in names), 60)
    _delete_driver_pods(rig)
    for name in names:
        space.wait_ready(name, 240)
    _expect_one_volume_each(rig, space)
    space.step("all pods of the driver deleted while 12 pods start: all ready, one volume each")

    for name in names:
        rig.api.delete("Pod", name, space.name)
    _delete_driver_pods(rig)
    for name in names:
        rig.api.wait(f"{name} detached", lambda: space.attached(name) is None, 240)
        rig.api.delete("PersistentVolumeClaim", name, space.name)
    rig.simulator.latency(volume_create={"fixed_ms": 50}, attach={"fixed_ms": 50})
    rig.wait_installed(240)
    space.step("all pods of the driver deleted while the 12 end: all volumes detached")


def _delete_driver_pods(rig):
    rig.kubectl("-n", NAMESPACE, "delete", "pod", "--wait=false", "-l", f"app in ({CONTROLLER}, {NODE})")


def _emptied_registration(rig, space):
    """What happens when somebody empties kubelet's registration directory."""
    registry = rig.node("n1").directory / "kubelet/plugins_registry"
    for socket in registry.glob("ebs.csi.aws.com*"):
        socket.unlink()
    rig.api.wait("socket made again", lambda: list(registry.glob("ebs.csi.aws.com*")), 90)
    rig.api.wait("registered again", lambda: rig.registered("n1"), 60)
    node_pod_recovers(rig)
    _registration(rig, "registration socket removed")
    space.step("registration socket removed: made again, driver registered")


def _copied(rig, space):
    """A pod that mounts the node's root without propagation keeps a copy of the volume's mount."""
    _mounted(space, "copied")
    lines = _lines(space, "copied")
    space.pod("watcher", "n1", None, SLEEPER, host_root=True)
    space.wait_ready("watcher")
    held = space.run("watcher", "grep -c kubernetes.io~csi /proc/mounts")
    expect(int(held) > 0, "the watcher has a copy of the mount")
    _moves(space, "copied", lines)
    expect(space.ready("watcher"), "the watcher still runs")
    space.delete_pod("watcher")
    space.step("a pod with a copy of the node's mounts: the volume moved all the same")


def _drain(rig, space):
    """The node is cordoned and its pod deleted: node-lifecycle tells the pod of the drain, and the
    pod stays until the volumes are unmounted."""
    _mounted(space, "drain")
    (pod,) = rig.driver_pods(NODE, "n1")
    name = pod["metadata"]["name"]
    rig.api.patch("Node", "n1", None, {"spec": {"unschedulable": True}})
    rig.api.wait("the agent sees the drain", lambda: _annotated(rig, pod), 120)
    rig.api.delete("Pod", name, NAMESPACE)
    time.sleep(3)
    expect(rig.api.get("Pod", name, NAMESPACE), "the node's pod waits for the volume")
    space.delete_pod("drain")
    # kubelet unmounts the staging path after the Pod object is gone.
    rig.api.wait("volume unmounted", lambda: not rig.node("n1").volume_mounts(), 30)
    rig.api.wait("node's pod gone", lambda: not rig.api.get("Pod", name, NAMESPACE), 60)
    rig.api.patch("Node", "n1", None, {"spec": {"unschedulable": None}})
    node_pod_recovers(rig)
    (pod,) = rig.driver_pods(NODE, "n1")
    rig.api.wait("the drain's end is told", lambda: not _annotated(rig, pod), 120)
    space.step("node's pod deleted after a cordon: it waited until the volume was unmounted")


def _annotated(rig, pod):
    """Whether kubelet has written the annotation into the pod's volume."""
    pods = "var/lib/kubelet/pods"
    volume = f"{pods}/{pod['metadata']['uid']}/volumes/kubernetes.io~downward-api/facts"
    return "draining" in (rig.node("n1").root() / volume / "annotations").read_text()


def _rollout(rig, space):
    """A DaemonSet update that starts the new pod before the old one ends."""
    _mounted(space, "rollout")
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    rig.install({"node": {"updateStrategy": surge, "podAnnotations": {"rig.test/rollout": "1"}}})
    rig.wait_installed(240)
    _registration(rig, "DaemonSet rolled with surge")
    _writes_on(space, "rollout")
    _moves(space, "rollout", _lines(space, "rollout"))
    rig.install()
    rig.wait_installed(240)
    space.step("DaemonSet rolled with surge and back: mounted volume written on, pod moved")


def _reboot(rig, space):
    _mounted(space, "reboot")
    lines = _lines(space, "reboot")
    node = rig.node("n1")
    node.cut_power()
    node.start()
    rig.wait_node(node)
    rig.api.wait("pod runs again", lambda: _restarted(space, "reboot"), 180)
    found = _lines(space, "reboot")
    expect(found >= lines, f"no synced line is lost: {found} of {lines}")
    node_pod_recovers(rig)
    rig.wait_installed()
    _moves(space, "reboot", found)
    space.step("node rebooted with a volume mounted: pod writes on, no synced line lost")


def _restarted(space, name):
    found = space.get("Pod", name) or {}
    states = found.get("status", {}).get("containerStatuses", [])
    return bool(states) and states[0]["restartCount"] > 0 and "running" in states[0]["state"]

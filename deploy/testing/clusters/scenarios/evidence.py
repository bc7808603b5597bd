"""Safe detach enforced: the kernel's answer, not kubelet's lists, decides when a volume leaves a
running node. Pods that are wanted again are never stuck, writers that kubelet forgot keep their
volume."""

import contextlib
import datetime
import os
import signal
import statistics
import time
import urllib.request
from pathlib import Path

from rig.cluster import CONTROLLER, NAMESPACE, NODE
from rig.workload import SLEEPER, WRITER, Space, pod_spec

from .dead_node import SAFE_DETACH
from .expect import expect

# Each round scales a StatefulSet of so many pods to nothing and back while EC2 refuses connections.
ROUNDS = int(os.environ.get("RIG_ROUNDS", "10"))
_PODS = int(os.environ.get("RIG_PODS", "2"))
# For so many seconds more than it takes to be refused, agents or node-lifecycle are stopped.
_STOPPED = int(os.environ.get("RIG_STOPPED", "0"))
# The longest time from EC2's return until a detach is over.
_NOT_STUCK = 10
_PROMISES = int(os.environ.get("RIG_PROMISES", "20"))
_LEAVING = "ebs.csi.aws.com/leaving"
_PAGE = "ebs.csi.aws.com/held-port"
_PAGE_PORT = 9808
# The container writes for so long after SIGTERM.
_SLOW = 20


def play(rig):
    rig.install(SAFE_DETACH)
    rig.wait_installed()
    space = Space(rig, "evidence")
    for part in (_restarted_in_place, _promise_latency, _kubelet_restarted, _node_registered_again,
                 _raw_volume_held, _copied_mount, _agent_stopped, _node_lifecycle_stopped,
                 _old_agents, _off_and_on):
        part(rig, space)
    space.remove()
    rig.install()
    rig.wait_installed()


def _restarted_in_place(rig, space):
    """Kubelet lists the volumes again while their detaches are on the way: each detach ends
    nevertheless. A pod may wait two minutes more: so long does Kubernetes wait for a VolumeAttachment
    that goes away just as an attach begins."""
    space.stateful_set("again", _PODS, WRITER, prefer="n1")
    pods = [f"again-{number}" for number in range(_PODS)]
    for pod in pods:
        space.wait_ready(pod)
    longest, refused, detaches = 0, _refusals(rig), len(rig.simulator.calls("DetachVolume"))
    for number in range(ROUNDS):
        rig.simulator.request("/v1/outage", "POST", {"for_ms": 8000})
        started = time.monotonic()
        _scale(rig, space, 0)
        rig.api.wait("pods gone", lambda: not any(space.get("Pod", pod) for pod in pods), 60)
        # The attach/detach controller begins with the detach once kubelet has unmounted.
        time.sleep(3 + number % 4)
        _scale(rig, space, _PODS)
        time.sleep(max(0, started + 8 - time.monotonic()))
        back = time.monotonic()
        waiting = set(pods)
        while waiting:
            over = {pod for pod in waiting if not _attachment(rig, space, f"volume-{pod}")[1]}
            seconds = time.monotonic() - back
            expect(seconds < 120, f"detaches over: {waiting}")
            for _ in over:
                rig.results.add("restart-in-place", "time from EC2's return until a detach ends whose "
                                "pod is wanted on its node again", "s", "detach", seconds, role="ours")
                longest = max(longest, seconds)
            waiting -= over
            time.sleep(0.1)
        for pod in pods:
            space.wait_ready(pod, 180)
    expect(longest <= _NOT_STUCK, f"no detach is stuck longer than {_NOT_STUCK} s, not {longest:.1f}")
    detaches = len(rig.simulator.calls("DetachVolume")) - detaches
    space.step(f"{ROUNDS * _PODS} restarts in place without EC2 for 8 s: {detaches} detaches, the longest "
               f"over after {longest:.1f} s; {_refusals(rig) - refused} refusals on the way")
    rig.api.delete("StatefulSet", "again", space.name)
    rig.api.wait("pods gone", lambda: not any(space.get("Pod", pod) for pod in pods), 60)
    for pod in pods:
        rig.api.wait("volume detached", lambda pod=pod: space.attached(f"volume-{pod}") is None, 60)


def _promise_latency(rig, space):
    """From the request in the API until the node's page shows the promise."""
    (pod,) = rig.driver_pods(NODE, "n1")
    name, address = pod["metadata"]["name"], pod["status"]["podIP"]
    latencies = []
    for number in range(_PROMISES):
        volume, attached = f"vol-{number:017x}", "2026-01-01T00:00:00Z"
        started = time.monotonic()
        _ask_promise(rig, name, f"{volume}@{attached}")
        page = f"http://{address}:{_PAGE_PORT}/held?volume={volume}&attached={attached}&question=1"
        rig.api.wait("promise shown", lambda page=page: "promised yes" in _page(page), 60, pause=0.02)
        seconds = time.monotonic() - started
        latencies.append(seconds)
        rig.results.add("promise", "time from a promise's request in the API until the node's page "
                        "shows it", "s", "annotation, kubelet's file, helper, page", seconds, role="ours")
        # Kubelet's next look at the pod comes at another phase each time.
        time.sleep(0.3 * (number % 7))
    _ask_promise(rig, name, None)
    latencies.sort()
    p99 = latencies[(99 * len(latencies) - 1) // 100]
    space.step(f"{_PROMISES} promises requested and shown: median {statistics.median(latencies):.2f} s, "
               f"p99 {p99:.2f} s")


def _ask_promise(rig, pod, entry):
    rig.api.patch("Pod", pod, NAMESPACE, {"metadata": {"annotations": {_LEAVING: entry}}})


def _page(address):
    with urllib.request.urlopen(address, timeout=5) as response:
        return response.read().decode()


def _kubelet_restarted(rig, space):
    """Kubelet restarts, with empty lists, under a writer that outlives its pod's object."""
    def restart(node):
        node.kill_kubelet()
        node.start_kubelet()
    _writer_outlives_lists(rig, space, "restarted", restart)


def _node_registered_again(rig, space):
    """The Node object is deleted and registered again under such a writer."""
    def register(node):
        node.kill_kubelet()
        rig.api.delete("Node", node.name)
        rig.api.wait("Node gone", lambda: rig.api.get("Node", node.name) is None, 30)
        node.start_kubelet()
    _writer_outlives_lists(rig, space, "registered", register)
    rig.wait_installed(180)


def _writer_outlives_lists(rig, space, name, lose_lists):
    space.claim(name)
    # The shell ignores SIGTERM, and ends of itself a while after it.
    script = ("trap 'end=$(( $(date +%s) + " + str(_SLOW) + " ))' TERM; end=; "
              "while [ -z \"$end\" ] || [ $(date +%s) -lt $end ]; do "
              "cut -d ' ' -f 1 /proc/uptime >>/data/log; sync; sleep .2; done")
    spec = pod_spec(WRITER, "n1", name, False)
    spec["terminationGracePeriodSeconds"] = 2 * _SLOW
    spec["containers"][0]["command"] = ["sh", "-c", script]
    space.start(name, spec)
    space.wait_ready(name)
    volume, before = space.volume_of(name), len(rig.simulator.calls("DetachVolume"))
    rig.api.delete("Pod", name, space.name)
    # The containers have the signal by then.
    time.sleep(2)
    rig.api.delete("Pod", name, space.name, grace=0)
    lose_lists(rig.node("n1"))
    rig.wait_node(rig.node("n1"))
    rig.api.wait("volume detached", lambda: _detached(rig, volume, before), 180)
    detached = _detached(rig, volume, before)
    rig.api.wait("attachment gone", lambda: space.attached(name) is None, 60)
    space.pod(f"{name}-reads", "n2", name, SLEEPER)
    space.wait_ready(f"{name}-reads", 120)
    last = float(space.run(f"{name}-reads", "tail -n 1 /data/log")) + _boot_time()
    expect(detached > last, f"{name}: DetachVolume {detached - last:.2f} s after the last write")
    space.step(f"{name}: DetachVolume {detached - last:.2f} s after the writer's last write")
    space.delete_pod(f"{name}-reads")


def _boot_time():
    """In seconds since 1970. All containers have the machine's clock since the boot."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime


def _raw_volume_held(rig, space):
    """Something on the node holds a raw volume's disk after its pod is gone."""
    space.claim("raw", mode="Block")
    space.pod("raw", "n1", "raw", SLEEPER, block=True)
    space.wait_ready("raw")
    volume, before = space.volume_of("raw"), len(rig.simulator.calls("DetachVolume"))
    (path,) = [one for one in rig.simulator.device_directory("n1").glob("loop*")
               if one.is_block_device() and str(rig.simulator.image(volume)) in _backing(one)]
    # Not exclusive yet: the pod still has it.
    space.delete_pod("raw")
    rig.api.wait("not published", lambda: not rig.node("n1").volume_mounts(), 60)
    with contextlib.ExitStack() as stack:
        descriptor = rig.api.wait("claimed", lambda: _claim(path), 5, pause=0.005)
        stack.callback(os.close, descriptor)
        refused = rig.api.wait("refused", lambda: _refusal(rig, space, "raw"), 60)
        time.sleep(15)
        expect(not _detached(rig, volume, before), "a disk that is held stays")
        space.step(f"raw volume held open exclusively: {refused.split(':')[0]}, no DetachVolume in 15 s")
    rig.api.wait("volume detached", lambda: _detached(rig, volume, before), 60)
    space.step("raw volume detached after the holder ended")


def _backing(path):
    number = os.minor(path.stat().st_rdev)
    try:
        with open(f"/sys/dev/block/7:{number}/loop/backing_file", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _claim(path):
    """The descriptor of the disk, claimed for this process alone; None while others have claimed
    it."""
    try:
        return os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    except OSError:
        return None


def _copied_mount(rig, space):
    """A pod that mounts the node's root has a copy of the volume's mount."""
    space.claim("copy")
    space.pod("copy", "n1", "copy")
    space.wait_ready("copy")
    space.pod("watcher", "n1", None, SLEEPER, host_root=True)
    space.wait_ready("watcher")
    expect(int(space.run("watcher", "grep -c kubernetes.io~csi /proc/mounts")) > 0, "it has a copy")
    space.delete_pod("copy")
    space.pod("copy", "n2", "copy", SLEEPER)
    space.wait_ready("copy")
    expect(space.ready("watcher"), "the watcher still runs")
    space.step("a pod with a copy of the mount: the volume moved all the same")
    space.delete_pod("watcher")
    space.delete_pod("copy")


def _agent_stopped(rig, space):
    """Without the node's answer a detach waits, and goes on with it."""
    _waits_while(rig, space, "agentless", lambda: rig.node("n1").processes("ebs-csi-node-agent"),
                 unstaged=True)


def _node_lifecycle_stopped(rig, space):
    def processes():
        return [pid for node in rig.nodes for pid in node.processes("ebs-csi-node-lifecycle")]
    _waits_while(rig, space, "unheard", processes, unstaged=False)


def _waits_while(rig, space, name, processes, unstaged):
    """Stops processes while a volume is to be detached."""
    space.claim(name)
    space.pod(name, "n1", name)
    space.wait_ready(name)
    volume, before = space.volume_of(name), len(rig.simulator.calls("DetachVolume"))
    if unstaged:
        # NodeUnstage needs the agent; the volume is free before it stops.
        rig.simulator.request("/v1/outage", "POST", {"for_ms": 6000})
        space.delete_pod(name)
        rig.api.wait("unmounted", lambda: not rig.node("n1").volume_mounts(), 30)
    stopped = set()
    expect(processes(), f"{name}: the processes run")
    try:
        _stop(processes, stopped)
        if not unstaged:
            space.delete_pod(name)
        # Before that, EC2 may not have answered.
        refused = rig.api.wait("no-report", lambda: _refusal(rig, space, name, "no-report"), 90)
        end = time.monotonic() + _STOPPED
        while time.monotonic() < end:
            # Kubelet restarts a container whose liveness probe fails.
            _stop(processes, stopped)
            time.sleep(0.05)
        expect(not _detached(rig, volume, before), "nothing is detached without the node's answer")
        if unstaged and _STOPPED:
            # The metric of the alert EBSDetachRefused.
            oldest = _metric(rig, "aws_ebs_csi_safe_detach_refused_oldest_seconds", port=3308)
            expect(oldest >= _STOPPED, f"node-lifecycle says how long it is refused, not {oldest} s")
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    back = time.time()
    # Kubelet restarts a container that failed often after up to five minutes.
    rig.wait_installed(420)
    ready = time.time()
    detached = rig.api.wait("volume detached", lambda: _detached(rig, volume, before), 120)
    space.step(f"{name}: {refused.split(':')[0]} while {len(stopped)} processes stop; pods ready "
               f"{ready - back:.1f} s after they go on, DetachVolume {detached - ready:+.1f} s from then")


def _stop(processes, stopped):
    """Stops those of the processes that were not stopped before."""
    for pid in set(processes()) - stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        stopped.add(pid)


def _old_agents(rig, space):
    """The node's agents lose the label of the page, as those of an earlier release, and get it back,
    while detaches wait."""
    for name in ("old", "new"):
        space.claim(name)
        space.pod(name, "n1", name)
        space.wait_ready(name)
    _label_page(rig, None)
    _moves(space, "old")
    expect(_by_kubelet(rig) > 0, "the detach on kubelet's lists is counted")
    space.step("agents without the page: the volume moved on kubelet's lists, and it is counted")
    _label_page(rig, str(_PAGE_PORT))
    counted = _by_kubelet(rig)
    _moves(space, "new")
    expect(_by_kubelet(rig) == counted, "the node's answer decides again")
    space.step("agents with the page again: the volume moved on the node's answer")


def _off_and_on(rig, space):
    """Safe detach is turned off and on again while volumes are attached."""
    for name in ("attached-on", "attached-off"):
        space.claim(name)
    space.pod("attached-on", "n1", "attached-on")
    space.wait_ready("attached-on")
    rig.install()
    rig.wait_installed(240)
    space.pod("attached-off", "n1", "attached-off")
    space.wait_ready("attached-off")
    _moves(space, "attached-on")
    space.step("off: a volume that was attached in enforce moved")
    rig.install(SAFE_DETACH)
    rig.wait_installed(240)
    _moves(space, "attached-off")
    space.step("on again: a volume that was attached with safe detach off moved")


def _label_page(rig, port):
    """Rolls the DaemonSet; a detach that is on its way meets both kinds of agents."""
    change = {"spec": {"template": {"metadata": {"labels": {_PAGE: port}}}}}
    rig.api.patch("DaemonSet", NODE, NAMESPACE, change)
    rig.api.wait("node pods ready", rig.node_pods_ready, 240)


def _moves(space, name):
    space.delete_pod(name)
    space.pod(name, "n2", name, SLEEPER)
    space.wait_ready(name)
    space.delete_pod(name)


def _scale(rig, space, replicas):
    rig.api.patch("StatefulSet", "again", space.name, {"spec": {"replicas": replicas}})


def _detached(rig, volume, before):
    """When EC2 got the DetachVolume call for the volume, in seconds since 1970."""
    for call in rig.simulator.calls("DetachVolume")[before:]:
        if call["parameters"].get("VolumeId") == volume and call["status"] == 200:
            return datetime.datetime.fromisoformat(call["at"].replace("Z", "+00:00")).timestamp()
    return None


def _attachment(rig, space, claim):
    """The claim's VolumeAttachment, and whether it is being deleted."""
    name = space.get("PersistentVolumeClaim", claim)["spec"].get("volumeName")
    for one in rig.api.list("VolumeAttachment"):
        if one["spec"]["source"].get("persistentVolumeName") == name:
            return one, "deletionTimestamp" in one["metadata"]
    return None, False


def _refusal(rig, space, claim, token=""):
    """What external-attacher was told of the detach, once the driver has refused it with this
    token."""
    attachment, _ = _attachment(rig, space, claim)
    text = (attachment or {}).get("status", {}).get("detachError", {}).get("message", "")
    at = text.find(f"SafeDetachRefused/{token}")
    return text[at:] if at >= 0 else None


def _metric(rig, name, label="", port=3301):
    """The sum of a counter over the controllers' pods."""
    total = 0.0
    for pod in rig.driver_pods(CONTROLLER):
        for line in _page(f"http://{pod['status']['podIP']}:{port}/metrics").splitlines():
            if line.startswith(name) and label in line:
                total += float(line.rsplit(" ", 1)[1])
    return int(total)


def _refusals(rig):
    return _metric(rig, "aws_ebs_csi_safe_detach_decisions_total", 'verdict="refuse"')


def _by_kubelet(rig):
    return _metric(rig, "aws_ebs_csi_safe_detach_decisions_total", 'evidence="kubelet-report"')

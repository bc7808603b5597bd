"""The DaemonSet restarted while node-agent and mount-helper are in the middle of their work: all
of it is completed, no disk is formatted twice, and mounts stay."""

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from rig.cluster import CONTROLLER, NAMESPACE, NODE
from rig.node import children
from rig.state import until
from rig.workload import Space

from ..expect import expect

_VOLUMES = 20
_CONTROLLER_RESTARTS = 3
# A container that finds what an earlier one wrote, or starts on an empty volume.
_COUNTING = ("cat /data/log >/tmp/found 2>/dev/null; "
             "while :; do date +%s.%N >>/data/log && sync /data/log || exit 1; sleep .2; done")
# The superblock of ext4: when the file system was made.
_MADE = 1024 + 0x108
# Bytes that a tool has read or written: more than its start takes.
_BEGUN = 32 * 1024


def play(rig):
    space = Space(rig, "rollout")
    for act in (_while_formatting, _while_checking, _while_staging, _of_controller):
        act(rig, space)
    space.remove()


def _of_controller(rig, space):
    for _ in range(_CONTROLLER_RESTARTS):
        rig.kubectl("-n", NAMESPACE, "rollout", "restart", f"deployment/{CONTROLLER}")
        rig.wait_installed()
        rig.wait_controllers_apart()
    space.step(f"controller restarted {_CONTROLLER_RESTARTS} times: its replicas stay on two nodes")


def _restart(rig, node):
    """`kubectl rollout restart`, until all nodes run new pods that kubelet knows."""
    (former,) = rig.driver_pods(NODE, node)
    rig.kubectl("-n", NAMESPACE, "rollout", "restart", f"daemonset/{NODE}")
    rig.api.wait("pods replaced", lambda: _replaced(rig, node, former), 120)
    rig.wait_installed(120)


def _replaced(rig, node, former):
    pods = rig.driver_pods(NODE, node)
    return bool(pods) and all(pod["metadata"]["uid"] != former["metadata"]["uid"] for pod in pods)


class _HelperLogs:
    """The lines of all mount-helpers of a node, also of those whose pods are gone."""

    def __init__(self, node):
        self._source = node.directory / "log/pods"
        self._kept = node.directory / "log/kept"
        self._kept.mkdir(exist_ok=True)

    def keep(self):
        for file in self._source.glob(f"{NAMESPACE}_{NODE}-*/mount-helper/*.log"):
            link = self._kept / str(file.stat().st_ino)
            if not link.exists():
                os.link(file, link)

    def stages(self, volume):
        """The lines about successful stages of a volume that did more than to answer."""
        self.keep()
        lines = [line for file in sorted(self._kept.iterdir()) for line in file.read_text().splitlines()]
        return [line for line in lines if volume in line and "formatted=" in line]


def _while_formatting(rig, space):
    node = rig.node("n1")
    logs = _HelperLogs(node)
    logs.keep()
    tool = _Tool(node, "mke2fs", "wchar")
    space.claim("formatted", size="100Gi")
    space.pod("formatted", node.name, "formatted", _COUNTING)
    tool.wait_stopped()
    space.step("format of a volume stopped after its first writes")
    _restart(rig, node.name)
    expect(not tool.lives(), "the format ended with its helper")
    space.wait_ready("formatted")
    volume = space.volume_of("formatted")
    done = logs.stages(volume)
    expect(sum("formatted=yes" in line for line in done) == 1, f"one complete format: {done}")
    _writes(space, "formatted")
    space.delete_pod("formatted")
    space.step("DaemonSet restarted during a format: format begun anew, pod ready")


def _while_checking(rig, space):
    node = rig.node("n1")
    logs = _HelperLogs(node)
    space.claim("checked")
    space.pod("checked", node.name, "checked", _COUNTING)
    space.wait_ready("checked")
    _writes(space, "checked")
    lines = int(space.run("checked", "wc -l </data/log"))
    volume = space.volume_of("checked")
    space.delete_pod("checked")
    space.api.wait("volume detached", lambda: not space.attached("checked"), 90)
    # What the kernel writes when it meets an error: the next check is due.
    subprocess.run(["debugfs", "-w", "-R", "set_super_value state 2", rig.simulator.image(volume)],
                   check=True, capture_output=True)
    logs.keep()
    tool = _Tool(node, "e2fsck", "rchar")
    space.pod("checked", node.name, "checked", _COUNTING)
    tool.wait_stopped()
    space.step("check of a volume stopped in its midst")
    _restart(rig, node.name)
    expect(not tool.lives(), "the check ended with its helper")
    space.wait_ready("checked")
    done = logs.stages(volume)
    expect(sum("checked=yes" in line for line in done) == 1, f"one complete check: {done}")
    expect(sum("formatted=yes" in line for line in done) == 1, f"formatted the first time alone: {done}")
    found = int(space.run("checked", "wc -l </tmp/found"))
    expect(found >= lines, f"the pod finds what was written before: {found} of {lines} lines")
    space.delete_pod("checked")
    space.step("DaemonSet restarted during a check: check begun anew, pod ready with its data")


def _while_staging(rig, space):
    node = rig.node("n1")
    logs = _HelperLogs(node)
    names = [f"many-{number}" for number in range(_VOLUMES)]
    for name in names:
        space.claim(name)
        space.pod(name, node.name, name, _COUNTING)
    volumes = {name: space.api.wait(f"{name} bound", lambda: space.volume_of(name), 120)
               for name in names}
    made = _Made(rig, volumes.values())
    space.api.wait("first volumes staged", lambda: len(_staged(node)) >= 3, 120, 0.02)
    before = _staged(node)
    logs.keep()
    _restart(rig, node.name)
    lost = before - _staged(node)
    expect(not lost, f"mounts stay: {lost}")
    for name in names:
        space.wait_ready(name, 240)
    after = _staged(node)
    expect(before <= after and len(after) == _VOLUMES, f"{len(after)} volumes staged, mounts stay")
    for name, times in made.end().items():
        expect(len(times) == 1, f"{name} was formatted once, not at {times}")
    for volume in volumes.values():
        done = logs.stages(volume)
        expect(sum("formatted=yes" in line for line in done) <= 1, f"formatted once: {done}")
    for name in names:
        status = space.get("Pod", name)["status"]["containerStatuses"][0]
        expect(status["restartCount"] == 0, f"{name} was not started anew")
    _writes(space, names[0])
    space.step(f"DaemonSet restarted with {len(before)} of {_VOLUMES} volumes staged: all pods ready, "
               "mounts stay, each disk formatted once")


def _staged(node):
    """Mount id and source of each volume that is staged on the node."""
    lines = [line.split() for line in node.volume_mounts() if "globalmount" in line]
    return {(words[0], words[words.index("-") + 2]) for words in lines}


def _writes(space, name):
    before = int(space.run(name, "wc -l </data/log"))
    space.api.wait(f"{name} writes on", lambda: int(space.run(name, "wc -l </data/log")) > before, 20)


class _Tool:
    """The next process of a tool on a node, stopped in the middle of its work."""

    def __init__(self, node, name, did):
        """`did` is the counter of /proc/PID/io that tells that the work has begun."""
        self._name, self._did = name, did
        self._helpers = node.processes("ebs-csi-mount-helper")
        self._found = None
        self._thread = threading.Thread(target=self._stop, daemon=True)
        self._thread.start()

    def _stop(self):
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            for pid in _descendants(self._helpers):
                if _has_begun(pid, self._name, self._did):
                    os.kill(pid, signal.SIGSTOP)
                    self._found = pid
                    return
            time.sleep(0.001)

    def wait_stopped(self):
        self._thread.join()
        expect(self._found, f"{self._name} runs")
        # The signal takes effect when the process leaves the kernel.
        until(lambda: _state(self._found) != "D", 5)
        until(lambda: _state(self._found) == "T", 1)
        expect(_state(self._found) == "T",
               f"{self._name} was stopped in its midst, its state is {_state(self._found)}")

    def lives(self):
        return _state(self._found) is not None


def _descendants(pids):
    for pid in pids:
        below = children(pid)
        yield from below
        yield from _descendants(below)


def _has_begun(pid, name, did):
    try:
        if not os.readlink(f"/proc/{pid}/exe").endswith(f"/{name}"):
            return False
        done = re.search(rf"^{did}: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
        return int(done.group(1)) >= _BEGUN
    except OSError:
        return False


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


class _Made:
    """When the file systems of volumes were made, looked at all the time."""

    def __init__(self, rig, volumes):
        self._images = {volume: rig.simulator.image(volume) for volume in volumes}
        self._seen = {volume: set() for volume in volumes}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        while not self._end.wait(0.1):
            for volume, image in self._images.items():
                with open(image, "rb") as file:
                    file.seek(_MADE)
                    self._seen[volume].add(int.from_bytes(file.read(4), "little"))

    def end(self):
        """The moments by volume, each in seconds since 1970."""
        self._end.set()
        self._thread.join()
        return {volume: sorted(seen - {0}) for volume, seen in self._seen.items()}

"""Pods that write and sync numbers while the driver is replaced, and what must stay as it was."""

import hashlib
import re
import threading
import time
from pathlib import Path

from rig import audit
from rig.api import Api
from rig.cluster import ACCOUNTS, DRIVER, NAMESPACE, NODE
from rig.workload import BLOCK_DEVICE

from ..expect import expect
from . import stand_in

# Each number is on the disk before the next one is written. A failed write or sync ends the
# container.
_COUNTING = ("i=$(tail -n 1 /data/log 2>/dev/null || echo 0); "
             "while :; do i=$((i+1)); echo $i >>/data/log && sync /data/log || exit 1; sleep .05; done")
# One number in each sector of the disk.
_COUNTING_RAW = ("i=0; while :; do i=$((i+1)); printf '%0511d\\n' $i | "
                 f"dd of={BLOCK_DEVICE} bs=512 seek=$i conv=notrunc,fsync 2>/dev/null || exit 1; "
                 "echo $i >/tmp/next; mv /tmp/next /tmp/last; sleep .05; done")
# How long the replacement of a node's pod takes, in seconds (`timing`). Where the old pod overlaps
# with the new one, kubelet still forgets the driver for a moment when the old one leaves.
_POD_RESTART = 3.0
_COUNTERS = ("counter-0", "counter-1")


class Workloads:
    """Two counters on file systems and one on a raw disk, which nobody touches until the end."""

    def __init__(self, rig, space):
        self._rig = rig
        self._space = space
        self._claims = [*(f"volume-{pod}" for pod in _COUNTERS), "raw"]

    def start(self):
        space = self._space
        space.stateful_set("counter", len(_COUNTERS), _COUNTING)
        space.claim("raw", mode="Block")
        space.pod("raw", "n2", "raw", _COUNTING_RAW, block=True)
        for pod in (*_COUNTERS, "raw"):
            space.wait_ready(pod)

    def watch_mounts_of(self, *claims):
        """Counts these volumes, too, among those whose mounts must not change."""
        self._claims += claims

    def change(self, to, action):
        """Changes the driver, and shows that no mount changed and all pods wrote on."""
        rig, space = self._rig, self._space
        mounts = self.mounts()
        before = self._last_numbers()
        watch = _Watch(rig)
        watch.start()
        started = time.monotonic()
        try:
            action()
        finally:
            watch.end()
        seconds = time.monotonic() - started
        after = self.mounts()
        expect(after == mounts, f"no mount changed: {mounts} became {after}")
        space.api.wait("all write on", lambda: all(
            now > before[pod] for pod, now in self._last_numbers().items()), 30)
        space.step(f"changed to {to} in {seconds:.1f} s: {len(mounts)} mounts as before")
        for node in rig.nodes:
            without, pod = (watch.longest.get((what, node.name), 0.0) for what in ("CSINode", "pod"))
            space.step(f"{node.name}: {without:.1f} s without the driver in CSINode, "
                       f"{pod:.1f} s without a ready pod")
            # A pod of the Go driver is ready before that driver serves, which takes its own time.
            if not rig.go_driver or to != stand_in.name(rig):
                expect(without <= max(pod, _POD_RESTART) + 1,
                       f"CSINode {node.name} lacked the driver no longer than a pod's restart takes")

    def mounts(self):
        """The nodes' mounts of these volumes and what the containers see of them, as in mountinfo:
        the first number is the mount's id."""
        marks, found = self._marks(), set()
        for node in self._rig.nodes:
            found.update(f"{node.name} {line}" for line in node.volume_mounts()
                         if any(mark in line for mark in marks))
        for pod in (*_COUNTERS, "raw"):
            table = Path(f"/proc/{self._first_process(pod)}/mountinfo").read_text().splitlines()
            found.update(f"{pod} {line}" for line in table if " /data " in line)
        return found

    def _marks(self):
        """The parts of paths that name the volumes in use: PersistentVolumes and hashed handles."""
        marks = []
        for claim in self._claims:
            marks.append(self._space.get("PersistentVolumeClaim", claim)["spec"]["volumeName"])
            marks.append(hashlib.sha256(self._space.volume_of(claim).encode()).hexdigest())
        return marks

    def _first_process(self, pod):
        """The first process of a pod's container."""
        uid = self._space.get("Pod", pod)["metadata"]["uid"]
        for node in self._rig.nodes:
            for pid in node.processes("busybox"):
                if _is_first_of(pid, uid):
                    return pid
        raise AssertionError(f"{pod} has no process")

    def _last_numbers(self):
        space = self._space
        numbers = {pod: int(space.run(pod, "tail -n 1 /data/log")) for pod in _COUNTERS}
        numbers["raw"] = int(space.run("raw", "cat /tmp/last"))
        return numbers

    def expect_complete(self):
        """Every number is there, and no container ended."""
        space = self._space
        for pod in (*_COUNTERS, "raw"):
            if pod == "raw":
                last = int(space.run(pod, "cat /tmp/last"))
                text = space.run(pod, f"dd if={BLOCK_DEVICE} bs=512 skip=1 count={last} 2>/dev/null")
            else:
                text = space.run(pod, "cat /data/log")
            numbers = [int(line) for line in text.split()]
            expect(numbers == list(range(1, len(numbers) + 1)), f"{pod} counts without a gap")
            states = space.get("Pod", pod)["status"]["containerStatuses"]
            expect(all(one["restartCount"] == 0 for one in states), f"{pod} was never started anew")
        space.step("no number lost, no I/O error, no container started anew")


def _is_first_of(pid, uid):
    try:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        inner = next(line.split()[-1] for line in status if line.startswith("NSpid:"))
        return inner == "1" and uid in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False  # It has ended.


class _Watch(threading.Thread):
    """For how long CSINode lacks the driver, and a node a ready pod of the driver."""

    def __init__(self, rig):
        super().__init__(daemon=True)
        self._rig = rig
        self._api = Api(rig.certificates)
        self._end = threading.Event()
        self._since = {}
        self.longest = {}

    def run(self):
        while not self._end.wait(0.05):
            ready = self._ready_nodes()
            for node in self._rig.nodes:
                self._note(("CSINode", node.name), self._in_csi_node(node.name))
                self._note(("pod", node.name), node.name in ready)

    def _in_csi_node(self, node):
        drivers = (self._api.get("CSINode", node) or {}).get("spec", {}).get("drivers") or []
        return any(one["name"] == DRIVER for one in drivers)

    def _ready_nodes(self):
        pods = self._api.list("Pod", NAMESPACE, labels=f"app={NODE}")
        return {pod["spec"].get("nodeName") for pod in pods
                if "deletionTimestamp" not in pod["metadata"]
                and any(one["type"] == "Ready" and one["status"] == "True"
                        for one in pod.get("status", {}).get("conditions", []))}

    def _note(self, key, there):
        now = time.monotonic()
        if there:
            self._since.pop(key, None)
        else:
            since = self._since.setdefault(key, now)
            self.longest[key] = max(self.longest.get(key, 0.0), now - since)

    def end(self):
        self._end.set()
        self.join()


# Helm takes roles away before the pods that had them end: the Go driver's preStop hook may not ask
# for its node any more, and node-lifecycle and the sidecars not renew their leases.
_REFUSED = (r":ebs-csi-node-sa: get /api/v1/nodes/n[12]$",
            r":ebs-csi-controller-sa: \w+ .*/leases/(ebs-csi-node-lifecycle|(external-\w+-(leader-)?)?"
            r"ebs-csi-aws-com)$")


def expect_known_refusals(rig, space):
    """What the API server refused the driver's accounts while the roles changed."""
    refused = sorted(set(audit.forbidden(rig, ACCOUNTS)))
    for one in refused:
        expect(any(re.search(allowed, one) for allowed in _REFUSED), f"{one} is not refused")
        space.step(f"refused while the roles changed: {one}")
    rig.audited_from = audit.now()

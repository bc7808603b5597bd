"""100 pods with a new volume each, started at once on two nodes: the time, the requests to the API
server, and the most memory that each container had."""

import collections
import time

from rig import audit
from rig.cluster import ACCOUNTS, CONTROLLER, NODE
from rig.workload import SLEEPER, Space, condition

from .memory import greatest
from .timing import CONTROLLER_CALLS, NODE_CALLS, ec2_seconds, spent

_PODS = 100
_NODES = (4, 5)
_TITLE = f"time until {_PODS} pods started at once on two nodes are ready"
_NOTE = (f"Half of the pods on each of two nodes, a new volume of 1 GiB for each pod; the driver's "
         f"calls less EC2's simulated time. Two processors run all of it: both nodes, the control "
         f"plane, EC2 and the driver. The same pods without volumes show what Kubernetes itself takes "
         f"there.")


def play(rig):
    nodes = rig.join(*_NODES)
    rig.wait_installed(240)
    space = Space(rig, "density")
    plain = _start(space, "plain", None)
    space.step(f"{_PODS} pods without volumes ready")
    for name in plain:
        space.api.delete("Pod", name, space.name)
    space.api.wait("plain pods gone", lambda: not space.api.list("Pod", space.name), 300)

    since = audit.now()
    ready = _start(space, "data", "data")
    space.step(f"{_PODS} pods with a new volume each ready")
    started = audit.counts(rig, since, ACCOUNTS)
    calls = {app: spent(rig, app, None, methods, ("vol-", "pvc-"))
             for app, methods in ((CONTROLLER, CONTROLLER_CALLS), (NODE, NODE_CALLS))}
    _times(rig, plain, ready, calls)
    greatest(rig, "container-memory-most",
             f"most memory of each container, {_PODS} volumes made and mounted at once")
    space.remove(600)
    _requests(rig, started, audit.counts(rig, since, ACCOUNTS))
    rig.leave(*nodes)
    rig.wait_installed(240)


def _start(space, prefix, claim):
    """Starts the pods and returns after how many seconds each was ready."""
    began = time.monotonic()
    names = [f"{prefix}-{number}" for number in range(_PODS)]
    for number, name in enumerate(names):
        if claim:
            space.claim(name)
        space.pod(name, f"n{_NODES[number % len(_NODES)]}", name if claim else None, SLEEPER)
    ready = {}

    def all_ready():
        now = time.monotonic() - began
        for pod in space.api.list("Pod", space.name):
            if condition(pod, "Ready") == "True":
                ready.setdefault(pod["metadata"]["name"], now)
        return len(ready) == _PODS

    space.api.wait(f"{_PODS} pods ready", all_ready, 600, 0.25)
    return ready


def _times(rig, plain, ready, calls):
    rows = (("pods without volumes: each", "part", plain.values()),
            ("pods without volumes: all", "part", [max(plain.values())]),
            ("pods with a new volume: each", "part", ready.values()),
            ("pods with a new volume: all", "ours", [max(ready.values())]),
            ("of it EC2 (simulated), for each pod", "part", [ec2_seconds(rig)]),
            ("one call of the controller", "part", calls[CONTROLLER]),
            ("one call of the node-agent", "part", calls[NODE]))
    for label, role, samples in rows:
        rig.results.add("density", _TITLE, "s", label, *samples, role=role, note=_NOTE)


def _requests(rig, started, ended):
    """Requests of the driver's two accounts for one volume, by program."""
    programs = collections.defaultdict(lambda: [0, 0])
    for index, counts in enumerate((started, ended)):
        for (program, verb, resource), number in sorted(counts.items()):
            programs[program][index] += number
            if index:
                print(f"    {program:<28} {verb:<8} {resource:<32} {number / _PODS:7.2f}", flush=True)
    for program, (start, whole) in sorted(programs.items()):
        for what, number in (("until the pod is ready", start), ("its whole life", whole)):
            rig.results.add("requests-per-volume", "requests to the API server for one volume",
                            "requests", f"{program}: {what}", number / _PODS,
                            note=f"From the API server's audit log, {_PODS} volumes at once; leases "
                                 "are left out. The controller and the programs on the node hold no "
                                 "token and send none.")
    ours = sum(whole for program, (_, whole) in programs.items() if program.startswith("ebs-csi-"))
    rig.results.add("requests-per-volume", "requests to the API server for one volume", "requests",
                    "all programs of the driver", ours / _PODS, role="ours")

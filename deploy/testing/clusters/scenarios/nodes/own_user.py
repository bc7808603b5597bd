"""`node.agent.startAs: agent`: the node-agent never runs as user 0, and does the same work."""

import os
import signal
from pathlib import Path

from rig.cluster import NODE
from rig.workload import SLEEPER, Space

from ..expect import expect

_USER = 65524


def play(rig):
    space = Space(rig, "own-user")
    space.claim("data")
    space.pod("before", "n1", "data", SLEEPER)
    space.wait_ready("before")
    rig.install({"node": {"agent": {"startAs": "agent"}}})
    rig.wait_installed()
    _pods_run_without_root(rig)
    space.step("agents of both nodes started as their own user; kubelets know them")

    space.claim("later")
    space.pod("first", "n2", "later", "echo written >/data/file; sync; sleep 100000")
    space.wait_ready("first")
    space.delete_pod("before")
    space.pod("after", "n2", "data", SLEEPER)
    space.wait_ready("after")
    space.step("a volume that was mounted before moved to the other node; a new one is mounted")

    for pid in rig.node("n2").processes("ebs-csi-node-agent"):
        os.kill(pid, signal.SIGKILL)
    rig.api.wait("killed agent replaced", lambda: rig.node("n2").processes("ebs-csi-node-agent"), 60)
    rig.wait_installed()
    space.delete_pod("first")
    space.pod("second", "n1", "later", SLEEPER)
    space.wait_ready("second")
    expect(space.run("second", "cat /data/file") == "written", "the data is on n1")
    space.step("agent killed: registered again, its volume moved with the data")

    rig.install()
    rig.wait_installed()
    space.delete_pod("second")
    space.pod("third", "n2", "later", SLEEPER)
    space.wait_ready("third")
    space.step("changed back: agents start as root and take their user, volumes move")
    space.remove()


def _pods_run_without_root(rig):
    for node in rig.nodes:
        (pod,) = rig.driver_pods(NODE, node.name)
        (container,) = [one for one in pod["spec"]["containers"] if one["name"] == "ebs-plugin"]
        context = container["securityContext"]
        expect(context["runAsUser"] == _USER, f"the container starts as {context['runAsUser']}")
        expect("add" not in context["capabilities"], f"no capability: {context['capabilities']}")
        found = node.processes("ebs-csi-node-agent")
        expect(found, f"the node-agent runs on {node.name}")
        for pid in found:
            status = dict(line.split(":", 1)
                          for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            expect(set(status["Uid"].split()) == {str(_USER)}, f"users {status['Uid']}")
            expect(int(status["CapPrm"], 16) == 0, f"capabilities {status['CapPrm']}")

"""Every switch of the chart on, `deploy/install/chart/ci/switches.yaml`, and DaemonSets that tolerate no
taint beside those that the chart adds: all pods get ready, also on a node that joins with the
startup taint. A node of an architecture without images ends the upgrade."""

from rig.cluster import CONTROLLER, NODE
from rig.workload import SLEEPER, Space

from ..expect import expect

_FOREIGN = "other-architecture"


def play(rig):
    space = Space(rig, "switches")
    switches = ("--values", rig.source / "deploy/install/chart/ci/switches.yaml")
    rig.install({"node": {"tolerateAllTaints": False, "tolerations": []}}, flags=switches)
    rig.wait_installed(240)
    for pod in rig.driver_pods(CONTROLLER):
        name = pod["metadata"]["name"]
        rig.api.wait(f"volumemodifier of {name} found the socket",
                     lambda name=name: "is there" in rig.log(name, "volumemodifier"), 60)
    space.step("all pods ready with every switch on")

    rig.leave(rig.node("n2"))
    rig.join(2)
    rig.wait_installed(240)
    expect(len(rig.driver_pods(NODE)) == len(rig.nodes), "a pod of the driver on each node")
    space.claim("data")
    space.pod("uses", "n2", "data", SLEEPER)
    space.wait_ready("uses")
    space.step("a node that joined with the startup taint serves a volume")

    _refuses_other_architecture(rig)
    space.step("a node of an architecture without images ends the upgrade")
    space.remove()
    rig.install()
    rig.wait_installed(240)


def _refuses_other_architecture(rig):
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "s390x"}
    rig.api.create({"apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": _FOREIGN, "labels": labels}})
    try:
        rig.install()
    except RuntimeError as refused:
        expect("has s390x nodes (1: " + _FOREIGN in str(refused), f"Helm says why: {refused}")
    else:
        raise AssertionError("an upgrade went on that would leave a node without the driver")
    finally:
        rig.api.delete("Node", _FOREIGN)

"""This driver installed over objects that no Helm release owns, with volumes in use: those of plain
manifests, and those that EKS leaves of its add-on. The steps are those of `upgrade.md`."""

from rig.cluster import CONTROLLER, NAMESPACE, NODE, condition
from rig.workload import SLEEPER, Space

from ..expect import expect
from . import stand_in
from .upgrade import OURS
from .workloads import Workloads, expect_known_refusals

_TAKE_OWNERSHIP = ("--take-ownership", "--force-conflicts")
# The new pods of nodes come one by one, when somebody deletes the old ones.
_ON_DELETE = {"node": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
_ROLE_OF_NODES = ("clusterrole/ebs-csi-node-role", "clusterrolebinding/ebs-csi-node-getter-binding")


def play(rig):
    _plain_manifests(rig)
    _add_on(rig)


def _plain_manifests(rig):
    stand_in.install_manifests(rig)
    space, workloads = _start_workloads(rig, "manifests")
    space.step(f"{stand_in.name(rig)} installed from plain manifests, volumes in use")

    def replace_workloads():
        _delete_workloads(rig)
        rig.install(flags=_TAKE_OWNERSHIP)
        rig.kubectl("-n", NAMESPACE, "delete", "pod", "-l", f"app={NODE}, !app.kubernetes.io/instance")
        rig.wait_installed(240)

    workloads.change(OURS, replace_workloads)
    for app in (CONTROLLER, NODE):
        expect(len(rig.driver_pods(app)) == 2, f"{app} has this driver's pods alone")
    rig.kubectl("delete", *_ROLE_OF_NODES)
    _use_new_volume(space, "n1")
    _finish(rig, space, workloads)


def _add_on(rig):
    stand_in.install_add_on(rig)
    space, workloads = _start_workloads(rig, "add-on")
    space.step(f"{stand_in.name(rig)} installed as EKS leaves its add-on, volumes in use")

    rig.kubectl("annotate", *_ROLE_OF_NODES, "helm.sh/resource-policy=keep")
    workloads.change("this driver's controller", lambda: (
        _delete_workloads(rig), rig.install(_ON_DELETE, flags=_TAKE_OWNERSHIP),
        rig.api.wait("controller ready", rig.controller_ready, 240)))
    for node in rig.nodes:
        (pod,) = rig.driver_pods(NODE, node.name)
        expect(_is_stand_in(pod), f"{node.name} still has the pod of {stand_in.name(rig)}")
    _use_new_volume(space, "n1")
    space.step(f"new volume formatted by the node part of {stand_in.name(rig)} under this controller")

    space.claim("moving")
    space.pod("moving", "n2", "moving")
    space.wait_ready("moving")
    workloads.change("this driver on n1", lambda: _replace_node_pod(rig, "n1"))
    for node in ("n1", "n2"):
        space.delete_pod("moving")
        space.pod("moving", node, "moving")
        space.wait_ready("moving")
    space.delete_pod("moving")
    space.step(f"a volume moved from a node of {stand_in.name(rig)} to this driver's and back")

    # Kubernetes may take the adopted pods for up to date: it compares the generation of the
    # template, too, and both DaemonSets began with the first.
    workloads.change("this driver on all nodes", lambda: (
        rig.install(), rig.kubectl("-n", NAMESPACE, "rollout", "restart", f"daemonset/{NODE}"),
        rig.wait_installed(240)))
    for node in rig.nodes:
        (pod,) = rig.driver_pods(NODE, node.name)
        expect(not _is_stand_in(pod), f"{node.name} has this driver's pod")
    rig.kubectl("delete", *_ROLE_OF_NODES)
    _use_new_volume(space, "n2")
    _finish(rig, space, workloads)


def _start_workloads(rig, name):
    space = Space(rig, name)
    workloads = Workloads(rig, space)
    workloads.start()
    return space, workloads


def _finish(rig, space, workloads):
    workloads.expect_complete()
    expect_known_refusals(rig, space)
    space.remove()


def _delete_workloads(rig):
    """Nothing that their owner set stays in those that the chart makes. The nodes' pods go on."""
    rig.kubectl("-n", NAMESPACE, "delete", f"deployment/{CONTROLLER}")
    rig.kubectl("-n", NAMESPACE, "delete", f"daemonset/{NODE}", "--cascade=orphan")


def _is_stand_in(pod):
    return any(one["name"] == "node-driver-registrar" for one in pod["spec"]["containers"])


def _replace_node_pod(rig, node):
    (pod,) = rig.driver_pods(NODE, node)
    rig.kubectl("-n", NAMESPACE, "delete", "pod", pod["metadata"]["name"])
    rig.api.wait(f"this driver's pod ready on {node}", lambda: any(
        condition(one, "Ready") == "True" and not _is_stand_in(one)
        for one in rig.driver_pods(NODE, node)), 120)
    rig.api.wait(f"driver registered on {node}", lambda: rig.registered(node), 60)


def _use_new_volume(space, node):
    name = f"new-on-{node}"
    space.claim(name)
    space.pod(name, node, name, SLEEPER)
    space.wait_ready(name)
    space.run(name, "echo written >/data/mark && sync")
    space.delete_pod(name)
    space.api.delete("PersistentVolumeClaim", name, space.name)
    space.api.wait(f"claim {name} gone", lambda: space.get("PersistentVolumeClaim", name) is None, 60)

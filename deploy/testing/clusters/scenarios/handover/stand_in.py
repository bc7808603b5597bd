"""The Go driver's stand-in (`go-driver`), or the Go driver's own program in the objects of the
stand-in's chart, installed in each of the ways that a cluster may have it."""

import shutil

from rig.cluster import CONTROLLER, DRIVER, NAMESPACE, NODE, RELEASE

_FIELD_MANAGER_OF_EKS = "eks"


def name(rig):
    return "the Go driver" if rig.go_driver else "the Go driver's stand-in"


def install_release(rig):
    """As a Helm release."""
    _remove_driver(rig)
    # As Helm 3 did, with which most releases of the Go driver were installed.
    rig.run_helm("install", RELEASE, *_chart(rig), "--server-side=false")
    wait_ready(rig)


def install_manifests(rig):
    """From plain manifests: no object, selector or pod names a release."""
    _remove_driver(rig)
    rig.kubectl("apply", "-f", _rendered(rig, "--set", "labels.release=false"))
    wait_ready(rig)


def install_add_on(rig):
    """As EKS leaves the objects of its add-on: applied by EKS' field manager, without a release."""
    _remove_driver(rig)
    objects = _rendered(rig, "--set", "labels.managedBy=EKS")
    rig.kubectl("apply", "--server-side", f"--field-manager={_FIELD_MANAGER_OF_EKS}", "-f", objects)
    wait_ready(rig)


def _chart(rig):
    peer = "true" if rig.go_driver else "false"
    return (rig.here / "go-driver/chart", "--values", rig.here / "values.yaml",
            "--set", f"peer={peer}")


def _rendered(rig, *arguments):
    file = rig.state.directory / "stand-in.yaml"
    file.write_text(rig.run_helm("template", RELEASE, *_chart(rig), *arguments))
    return file


def _remove_driver(rig):
    """Removes this driver's release with what the release leaves on the nodes."""
    rig.run_helm("uninstall", RELEASE)
    for app in (CONTROLLER, NODE):
        rig.api.wait(f"pods of {app} gone",
                     lambda: not rig.api.list("Pod", NAMESPACE, labels=f"app={app}"), 90)
    for node in rig.nodes:
        shutil.rmtree(node.root() / "run/ebs-csi", ignore_errors=True)
        for socket in (node.directory / "kubelet/plugins_registry").glob(f"{DRIVER}*"):
            socket.unlink()
        rig.api.wait(f"driver gone from CSINode {node.name}",
                     lambda: not rig.registered(node.name), 60)


def roll_back(rig):
    rig.run_helm("rollback", RELEASE, "1")
    wait_ready(rig)


def wait_ready(rig):
    rig.api.wait("controller ready", rig.controller_ready, 240)
    rig.api.wait("node pods ready", rig.node_pods_ready, 240)
    for node in rig.nodes:
        rig.api.wait(f"{name(rig)} registered on {node.name}",
                     lambda: _registered_after_start(rig, node.name), 60)


def _registered_after_start(rig, node):
    pods = rig.driver_pods(NODE, node)
    return (len(pods) == 1 and rig.registered(node)
            and "kubelet has registered" in rig.log(pods[0]["metadata"]["name"], "node-driver-registrar"))

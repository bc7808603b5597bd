"""The looks at cluster and nodes before anything is changed: by hand, as `install.md` says, and by
the chart."""

import json
import os
import subprocess

from rig.cluster import NAMESPACE, NODE
from rig.images import DRIVER, TAG
from rig.workload import Space

from .expect import expect

_NODES, _CLUSTER = "ebs-csi-preflight", "ebs-csi-preflight-cluster"
_CLASS = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "refused"},
          "provisioner": "ebs.csi.aws.com", "parameters": {"iops": "lots"}}


def play(rig):
    space = Space(rig, "preflight")
    _by_hand(rig, space)
    _by_chart(rig, space)
    rig.install()
    rig.wait_installed()
    space.remove()


def _by_hand(rig, space):
    apply, *look, delete = _commands(rig)
    level = "pod-security.kubernetes.io/enforce"
    rig.kubectl("label", "namespace", NAMESPACE, f"{level}=restricted")
    try:
        _run(rig, apply)
        status, said = _look(rig, look)
        expect(status == 0 and said.endswith("nothing is refused\n"), f"nothing is refused: {said}")
        space.step("pod as the page starts it, as restricted: nothing is refused, status 0")
        rig.api.apply(_CLASS)
        status, said = _look(rig, look)
        expect(status == 1 and "refused  StorageClass/refused" in said, f"the class: {said}")
        status, said = _look(rig, look, "--output=json")
        expect(status == 1 and json.loads(said)["refused"] == 1, f"a document: {said}")
        space.step("pod names a StorageClass that would be refused, status 1")
        _run(rig, delete)
    finally:
        rig.kubectl("label", "namespace", NAMESPACE, f"{level}-")
        rig.kubectl("delete", "storageclass", _CLASS["metadata"]["name"], "--ignore-not-found")
    _expect_no_rights(rig)


def _commands(rig):
    """The page's commands, with the rig's image."""
    page = (rig.source / "deploy/docs/install.md").read_text()
    section = page.partition("\n## Look first\n")[2].partition("\n## ")[0]
    lines = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    image = "REGISTRY/ebs-csi-node-lifecycle:v0.1.0"
    expect(image in lines, "the page names the image")
    lines = lines.replace(image, f"{DRIVER}-node-lifecycle:{TAG}")
    return lines.replace("\\\n", "").splitlines()


def _look(rig, commands, *arguments):
    """The status of the pod that the page starts, and its log."""
    run, logs, delete = commands
    status, _ = _run(rig, run.replace(" -- preflight", " ".join([" -- preflight", *arguments])))
    _, said = _run(rig, logs)
    _run(rig, delete)
    return status, said


def _run(rig, command):
    """The status and the standard output of a command in a shell."""
    done = subprocess.run(
        ["sh", "-c", command], cwd=rig.source, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env=dict(os.environ, PATH=f"{rig.programs}:{os.environ['PATH']}",
                 KUBECONFIG=str(rig.certificates.path("admin.kubeconfig"))))
    expect(done.returncode in (0, 1), f"{command}: {done.stdout}{done.stderr}")
    return done.returncode, done.stdout


def _by_chart(rig, space):
    looks = {"preflight": {"nodes": len(rig.nodes), "cluster": True}}
    rig.install(looks)
    pods = rig.driver_pods(_NODES)
    seen = {pod["spec"]["nodeName"]: rig.log(pod["metadata"]["name"], "preflight") for pod in pods}
    expect(set(seen) == {node.name for node in rig.nodes}, "one pod looked at each node")
    for node, log in sorted(seen.items()):
        failures = [line for line in log.splitlines() if line.startswith("fail")]
        expect("kubelet's root" in log and not failures, f"the driver can run on {node}: {log}")
    said = _logs(rig, _CLUSTER)
    expect(said.endswith("nothing is refused\n"), f"nothing is refused: {said}")
    _expect_no_rights(rig)
    space.step("upgrade went on after a look at the cluster and at each node")

    elsewhere = {"node": {"kubeletPath": "/var/lib/elsewhere"}}
    said = _expect_ended(rig, _NODES, looks, elsewhere)
    expect("/var/lib/elsewhere is not there" in said, "a pod says what is missing")
    space.step("upgrade ended by a look at a node that failed; the driver is as it was")

    rig.api.apply(_CLASS)
    try:
        said = _expect_ended(rig, _CLUSTER, looks)
        expect("refused  StorageClass/refused" in said, f"the pod names the class: {said}")
    finally:
        rig.kubectl("delete", "storageclass", _CLASS["metadata"]["name"])
    _expect_no_rights(rig)
    space.step("upgrade ended by a StorageClass that would be refused; the driver is as it was")
    rig.kubectl("-n", NAMESPACE, "delete", "job", _NODES, _CLUSTER, "--wait")


def _expect_ended(rig, job, *values):
    """What the Job says that ends an upgrade with these values."""
    before = rig.api.get("DaemonSet", NODE, NAMESPACE)["metadata"]["generation"]
    try:
        rig.install(*values)
    except RuntimeError as refused:
        expect(job in str(refused), f"helm names the Job that failed: {refused}")
    else:
        raise AssertionError(f"an upgrade that {job} should have ended went on")
    after = rig.api.get("DaemonSet", NODE, NAMESPACE)["metadata"]["generation"]
    expect(before == after, "the driver is as it was")
    return _logs(rig, job)


def _logs(rig, job):
    pods = rig.driver_pods(job)
    return "".join(rig.log(pod["metadata"]["name"], "preflight") for pod in pods)


def _expect_no_rights(rig):
    left = rig.kubectl("get", "clusterrole,clusterrolebinding,serviceaccount", "-n", NAMESPACE, "-o", "name")
    expect("ebs-csi-preflight" not in left, f"the rights to read are gone: {left}")

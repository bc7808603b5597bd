"""The chart's look at the nodes before it changes anything."""

from rig.cluster import NAMESPACE, NODE
from rig.workload import Space

from .expect import expect

_JOB = "ebs-csi-preflight"


def play(rig):
    space = Space(rig, "preflight")
    looks = {"preflight": {"nodes": len(rig.nodes)}}
    rig.install(looks)
    pods = rig.driver_pods(_JOB)
    seen = {pod["spec"]["nodeName"]: rig.log(pod["metadata"]["name"], "preflight") for pod in pods}
    expect(set(seen) == {node.name for node in rig.nodes}, "one pod looked at each node")
    for node, log in sorted(seen.items()):
        failures = [line for line in log.splitlines() if line.startswith("fail")]
        expect("kubelet's root" in log and not failures, f"the driver can run on {node}: {log}")
    space.step("upgrade went on after a look at each node")

    before = rig.api.get("DaemonSet", NODE, NAMESPACE)["metadata"]["generation"]
    try:
        rig.install(looks, {"node": {"kubeletPath": "/var/lib/elsewhere"}})
    except RuntimeError as refused:
        expect(_JOB in str(refused), f"helm names the Job that failed: {refused}")
    else:
        raise AssertionError("an upgrade for nodes without this kubelet root went on")
    logs = [rig.log(pod["metadata"]["name"], "preflight") for pod in rig.driver_pods(_JOB)]
    expect(any("/var/lib/elsewhere is not there" in log for log in logs), "a pod says what is missing")
    after = rig.api.get("DaemonSet", NODE, NAMESPACE)["metadata"]["generation"]
    expect(before == after, "the driver is as it was")
    space.step("upgrade ended by a look that failed; the driver is as it was")

    rig.kubectl("-n", NAMESPACE, "delete", "job", _JOB, "--wait")
    rig.install()
    rig.wait_installed()
    space.remove()

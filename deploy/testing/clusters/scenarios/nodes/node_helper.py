"""`node.helper.enabled: false`: a systemd of the node runs the mount-helper's unit."""

from rig.cluster import NODE
from rig.systemd import UNIT, Systemd
from rig.workload import SLEEPER, Space

from ..expect import expect


def play(rig):
    services = {node.name: Systemd(rig, node) for node in rig.nodes}
    space = Space(rig, "node-helper")
    space.claim("data")
    space.pod("before", "n1", "data", "echo written >/data/file; sync; sleep 100000")
    space.wait_ready("before")
    for service in services.values():
        service.give_directories()
        service.control("start", UNIT)
    space.step("the helper's service started on both nodes; it waits for the chart's helper to end")

    rig.install({"node": {"helper": {"enabled": False}, "agent": {"startAs": "agent"}}})
    rig.wait_installed()
    for node in rig.nodes:
        _no_container_is_privileged(rig, node)
        permitted = services[node.name].devices()
        expect("b *:* rw" in permitted and "a *:* rwm" not in permitted, f"devices: {permitted}")
    expect(space.run("before", "cat /data/file") == "written", "the pod reads its volume")
    space.step("no container of the node pods is privileged or root; kubelets know the agents")

    space.claim("later")
    space.pod("first", "n2", "later", "echo written >/data/file; sync; sleep 100000")
    space.wait_ready("first")
    space.delete_pod("before")
    space.pod("after", "n2", "data", SLEEPER)
    space.wait_ready("after")
    expect(space.run("after", "cat /data/file") == "written", "the data is on n2")
    space.step("a volume that the chart's helper had mounted moved; a new one is mounted")

    killed = services["n2"].properties("MainPID")
    services["n2"].control("kill", "--signal=KILL", UNIT)
    rig.api.wait("killed helper started again", lambda: _is_another(services["n2"], killed), 30)
    space.delete_pod("first")
    space.pod("second", "n1", "later", SLEEPER)
    space.wait_ready("second")
    expect(space.run("second", "cat /data/file") == "written", "the data is on n1")
    space.step("helper killed, started again by systemd: the volume that it had mounted moved")

    rig.install()
    for service in services.values():
        service.control("stop", UNIT)
        found = service.properties("ActiveState", "Result")
        expect(found == {"ActiveState": "inactive", "Result": "success"}, f"the helper ended: {found}")
        service.end()
    rig.wait_installed()
    space.delete_pod("second")
    space.pod("third", "n2", "later", SLEEPER)
    space.wait_ready("third")
    expect(space.run("third", "cat /data/file") == "written", "the data is on n2")
    space.step("changed back: systemd stopped the helper, the chart's helper mounts again")
    space.remove()


def _is_another(service, killed):
    found = service.properties("MainPID", "ActiveState")
    return found["ActiveState"] == "active" and found["MainPID"] not in ("0", killed["MainPID"])


def _no_container_is_privileged(rig, node):
    (pod,) = rig.driver_pods(NODE, node.name)
    for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
        context = container["securityContext"]
        name = container["name"]
        expect(not context.get("privileged"), f"{name} on {node.name} is not privileged")
        expect(context["runAsUser"] != 0, f"{name} on {node.name} is not root")
        expect("add" not in context["capabilities"], f"{name} on {node.name} adds no capability")

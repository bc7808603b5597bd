"""The chart's NetworkPolicies, enforced by kube-network-policies: what they allow passes, and the
driver works; what they do not allow passed before, and now does not."""

import contextlib
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rig.cluster import CONTROLLER, NAMESPACE, NODE
from rig.control_plane import module
from rig.images import NETWORK_POLICIES
from rig.network import API_SERVICE, CONTROL, METADATA, node_address
from rig.simulator import EC2_PORT
from rig.state import NAMESPACES
from rig.workload import SLEEPER, Space, pod_spec

from ..dead_node import SAFE_DETACH
from ..expect import Skipped, expect, expect_move

_NAME = "network-policies"
_METRICS = {"controller": {"enableMetrics": True}, "node": {"enableMetrics": True}, **SAFE_DETACH}
_SCRAPER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": _NAME}},
            "podSelector": {"matchLabels": {"app": "scraper"}}}
_POLICIES = {"networkPolicy": {"enabled": True, "metricsFrom": [_SCRAPER]}}
_CONTROLLER_PORTS, _NODE_PORT, _KUBELET = (3301, 3302, 3308), 9808, 10250
# The queue of the engine's manifest. Its own rules need nft_queue, which a kernel may lack; these
# let pass what they do: the node's root and begun connections. The engine judges all others.
_QUEUE, _CHAIN = "98", "first-packets"
_RULES = (("-m", "owner", "--uid-owner", "0", "-j", "ACCEPT"),
          ("-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"),
          ("-j", "NFQUEUE", "--queue-num", _QUEUE))


def play(rig):
    _make_chains(rig)
    space = Space(rig, _NAME)
    rig.install(_METRICS)
    for name in ("scraper", "stranger"):
        spec = pod_spec(SLEEPER, "n1", None, False)
        rig.api.apply({"apiVersion": "v1", "kind": "Pod", "spec": spec,
                       "metadata": {"name": name, "namespace": _NAME, "labels": {"app": name}}})
        space.wait_ready(name)
    rig.wait_installed()
    rig.wait_controllers_apart()
    _judge(rig, space, enforced=False)
    with _engine(rig):
        rig.install(_METRICS, _POLICIES)
        rig.restart(f"deployment/{CONTROLLER}", f"daemonset/{NODE}")
        rig.wait_controllers_apart()
        space.step("pods of the driver begun anew behind the policies: kubelet's probes pass")
        _judge(rig, space)
        _use(space)
    _judge(rig, space, enforced=False)
    space.remove()
    rig.install()
    rig.wait_installed()


def _connections(rig):
    """What connects to where: its name, a process in its network, address, port, and whether the
    policies allow that."""
    def address(app, node):
        (pod,) = rig.driver_pods(app, node)
        return pod["status"]["podIP"]

    def process(program, pod):
        """A process of a pod on n1."""
        marker = f"HOSTNAME={pod}\0".encode()
        found = rig.node("n1").processes(program)
        return next(pid for pid in found if marker in Path(f"/proc/{pid}/environ").read_bytes())

    scraper, stranger = (process("busybox", name) for name in ("scraper", "stranger"))
    controller, agent = (
        process(program, rig.driver_pods(app, "n1")[0]["metadata"]["name"])
        for program, app in (("ebs-csi-controller", CONTROLLER), ("ebs-csi-node-agent", NODE)))
    far = node_address(2)
    found = []
    for node in ("n1", "n2"):
        metrics = [(address(CONTROLLER, node), port) for port in _CONTROLLER_PORTS]
        metrics.append((address(NODE, node), _NODE_PORT))
        for host, port in metrics:
            found.append((f"scraper to {node}", scraper, host, port, True))
            found.append((f"stranger to {node}", stranger, host, port, False))
        # Who holds a volume.
        found.append((f"controller to agent of {node}", controller, *metrics[-1], True))
    for host, port, allowed in ((CONTROL, EC2_PORT, True), (CONTROL, 443, True), (API_SERVICE, 443, True),
                                (CONTROL, EC2_PORT + 1, False), (far, _KUBELET, False)):
        found.append(("controller", controller, host, port, allowed))
    other = address(CONTROLLER, "n2"), _CONTROLLER_PORTS[0]
    for host, port in ((CONTROL, EC2_PORT), (CONTROL, 443), (API_SERVICE, 443), (far, _KUBELET), other):
        found.append(("agent", agent, host, port, False))
    found.append(("agent to instance metadata", agent, METADATA, 80, True))
    return found


def _connects(pid, host, port):
    """Whether anything answers. Of TLS this needs no more than the refusal of plain text."""
    command = ["nsenter", "-t", str(pid), "--net", "curl", "-sS", "-m", "3", "-o", "/dev/null",
               "--http0.9", f"http://{host}:{port}/metrics"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _judge(rig, space, enforced=True):
    """Tries each connection. Without the engine, all must pass: no other cause may refuse one."""
    wanted = _connections(rig)
    with ThreadPoolExecutor(8) as threads:
        passed = list(threads.map(lambda one: _connects(*one[1:4]), wanted))
    wrong = [f"{name} at {host}:{port} {'passes' if passes else 'does not pass'}"
             for (name, _, host, port, allowed), passes in zip(wanted, passed)
             if passes != (allowed or not enforced)]
    expect(not wrong, f"{'policies' if enforced else 'nothing else'}: {'; '.join(wrong)}")
    space.step(f"{'with' if enforced else 'without'} the engine {sum(passed)} connections pass, "
               f"{len(passed) - sum(passed)} do not")


def _use(space):
    """The agents' pages prove each detach, so that the move needs the controller's way to them."""
    expect_move(space)
    space.delete_pod("second")
    space.step("a volume made, attached, moved with proof and detached behind the policies")


@contextlib.contextmanager
def _engine(rig):
    """Runs the engine on each node, by the manifest of its module."""
    text = (module(rig, "sigs.k8s.io/kube-network-policies") / "install.yaml").read_text()
    manifest = rig.state.directory / "kube-network-policies.yaml"
    manifest.write_text(re.sub(r"image: \S+", f"image: {NETWORK_POLICIES}", text))
    rig.kubectl("apply", "-f", manifest)
    try:
        rig.kubectl("-n", NAMESPACE, "rollout", "status", "daemonset/kube-network-policies", "--timeout=90s")
        for node in rig.nodes:
            queues = Path(f"/proc/{node.first_process()}/net/netfilter/nfnetlink_queue")
            rig.api.wait(f"engine of {node.name} has its queue",
                         lambda queues=queues: re.search(rf"^ *{_QUEUE} ", queues.read_text(), re.M), 60)
            _iptables(node, "-A", "POSTROUTING", "-j", _CHAIN)
        yield
    finally:
        for node in rig.nodes:
            _iptables(node, "-F")
            _iptables(node, "-X", _CHAIN)
        rig.kubectl("delete", "-f", manifest)


def _make_chains(rig):
    """The rules on each node, where no packet comes yet."""
    for node in rig.nodes:
        _iptables(node, "-N", _CHAIN)
        for rule in _RULES:
            _iptables(node, "-A", _CHAIN, *rule)


def _iptables(node, *arguments):
    done = subprocess.run(["nsenter", f"--net=/run/netns/{NAMESPACES[node.name]}", "iptables", "-t", "mangle",
                           *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skipped(f"iptables {' '.join(arguments)}: {done.stderr.strip()}")

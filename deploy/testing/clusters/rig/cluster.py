"""The whole rig: cluster, simulator, images and the driver as its chart installs it."""

import json
import os
import subprocess
import time
from pathlib import Path

from . import control_plane, network
from .api import Api
from .certificates import Certificates
from .node import STARTUP_TAINT, Node
from .results import Results
from .simulator import Simulator
from .state import State

NAMESPACE = "kube-system"
CONTROLLER = "ebs-csi-controller"
NODE = "ebs-csi-node"
ACCOUNTS = (f"{NAMESPACE}:ebs-csi-controller-sa", f"{NAMESPACE}:ebs-csi-node-sa")
DRIVER = "ebs.csi.aws.com"
RELEASE = "aws-ebs-csi-driver"


class Rig:
    """A running cluster. `up` makes it, `State.end` ends it."""

    def __init__(self, directory, profile="dev", go_driver=None, identity_webhook=None):
        self.here = Path(__file__).resolve().parents[1]
        self.source = self.here.parents[2]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ebs-csi"
        self.programs = cache / "kubernetes"
        self.helm = cache / "bin" / "helm"
        self.modules = self.here / "programs"
        target = Path(os.environ.setdefault("CARGO_TARGET_DIR", str(cache / "target")))
        self.profile = profile
        self.built = target / ("release" if profile == "release" else "debug")
        self.images = target / f"rig-images-{profile}"
        # Programs that take the place of their stand-ins: the Go driver's, and EKS's webhook.
        self.go_driver = go_driver
        self.identity_webhook = identity_webhook
        self.state = State(directory)
        self.certificates = None
        self.api = None
        self.simulator = None
        self.group_snapshots = False
        self.nodes = []
        # Refusals before this moment were judged by a scenario.
        self.audited_from = ""
        self.results = Results()

    def up(self):
        self.certificates = Certificates(self.state.directory / "pki")
        network.make()
        network.enter_control()
        self.api = Api(self.certificates)
        self.simulator = Simulator(self)
        self.simulator.start()
        control_plane.start(self)
        self.nodes = [Node(self, number) for number in (1, 2)]
        for node in self.nodes:
            node.start()
        control_plane.start_snapshot_controller(self)
        for node in self.nodes:
            self.wait_node(node)
        self.api.wait("default service account",
                      lambda: self.api.get("ServiceAccount", "default", "default"), 30)

    def join(self, *numbers, taints=()):
        """Has new nodes join, whose kubelets start at the same moment, with these taints beside the
        driver's."""
        nodes = [Node(self, number) for number in numbers]
        for node in nodes:
            node.taints += taints
            node.start(kubelet=False)
        for node in nodes:
            self.api.wait(f"images on {node.name}", node.has_images, 180)
        for node in nodes:
            node.begin_kubelet()
        self.nodes = sorted([*self.nodes, *nodes], key=lambda node: node.number)
        return nodes

    def leave(self, *nodes):
        """Switches nodes off and removes all that Kubernetes knows of them."""
        for node in nodes:
            node.cut_power()
            node.forget()
            self.nodes.remove(node)
            self.api.delete("Node", node.name)
        for node in nodes:
            for kind in ("Node", "CSINode"):
                self.api.wait(f"{kind} {node.name} gone",
                              lambda: not self.api.get(kind, node.name), 60)
            # Kubernetes itself waits 40 s before it removes these.
            for pod in self.api.list("Pod"):
                if pod["spec"].get("nodeName") == node.name:
                    meta = pod["metadata"]
                    self.api.delete("Pod", meta["name"], meta["namespace"], grace=0)

    def wait_node(self, node, ready=True, seconds=90):
        state = "Ready" if ready else "not Ready"
        self.api.wait(f"{node.name} {state}", lambda: self.node_ready(node.name) == ready, seconds)

    def node_ready(self, name):
        found = self.api.get("Node", name)
        return found is not None and condition(found, "Ready") == "True"

    def kubectl(self, *arguments, check=True):
        """kubectl's standard output."""
        done = subprocess.run(
            [self.programs / "kubectl", f"--kubeconfig={self.certificates.path('admin.kubeconfig')}",
             *map(str, arguments)],
            capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def execute(self, namespace, pod, script, check=True):
        """The output of a shell script in a pod. Waits for a kubelet that has just started."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return self.kubectl("-n", namespace, "exec", pod, "--", "sh", "-c", script, check=check)
            except RuntimeError as error:
                if "unable to upgrade connection" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def install(self, *values, flags=()):
        """Installs or upgrades the chart with the rig's values and these, and with Helm's flags."""
        files = [self.here / "values.yaml"]
        for number, more in enumerate(values):
            file = self.state.directory / f"values-{number}.json"
            file.write_text(json.dumps(more))
            files.append(file)
        values = [word for file in files for word in ("--values", file)]
        self.run_helm("upgrade", "--install", RELEASE, self.source / "deploy/install/chart", *values, *flags)

    def run_helm(self, *arguments):
        """Helm's standard output."""
        done = subprocess.run(
            [self.helm, *arguments, "--namespace", NAMESPACE,
             "--kubeconfig", self.certificates.path("admin.kubeconfig")],
            capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"helm {arguments[0]}: {done.stdout.strip()} {done.stderr.strip()}")
        return done.stdout

    def wait_installed(self, seconds=120):
        """Waits until all pods of the driver are ready and kubelets know it."""
        self.api.wait("controller ready", lambda: self.controller_ready(), seconds)
        self.api.wait("node pods ready", lambda: self.node_pods_ready(), seconds)
        for node in self.nodes:
            self.api.wait(f"driver registered on {node.name}", lambda: self.registered(node.name), 30)
            self.api.wait(f"startup taint off {node.name}", lambda: not self.tainted(node.name), 60)

    def restart(self, *names):
        """Begins all pods of these workloads anew, `deployment/NAME` or `daemonset/NAME`."""
        for name in names:
            self.kubectl("-n", NAMESPACE, "rollout", "restart", name)
            self.kubectl("-n", NAMESPACE, "rollout", "status", name, "--timeout=240s")
        self.wait_installed()

    def wait_controllers_apart(self):
        """Waits until each replica of the controller has a node of its own. Nothing moves a pod."""
        def apart():
            nodes = [pod["spec"].get("nodeName") for pod in self.driver_pods(CONTROLLER)]
            return len(nodes) == len(set(nodes)) == 2
        self.api.wait("replicas of the controller on two nodes", apart, 30)

    def tainted(self, node, key=STARTUP_TAINT):
        taints = self.api.get("Node", node)["spec"].get("taints", [])
        return any(taint["key"] == key for taint in taints)

    def controller_ready(self):
        found = self.api.get("Deployment", CONTROLLER, NAMESPACE)
        return found and rolled_out(found, found["spec"]["replicas"])

    def node_pods_ready(self):
        found = self.api.get("DaemonSet", NODE, NAMESPACE)
        if not found:
            return False
        status = found.get("status", {})
        wanted = len(self.nodes)
        return (status.get("observedGeneration") == found["metadata"]["generation"]
                and status.get("numberReady") == wanted
                and status.get("updatedNumberScheduled") == wanted)

    def registered(self, node):
        """Whether CSINode names the driver with its count."""
        return bool(self.volume_counts(node))

    def volume_counts(self, node):
        """How many volumes of the driver fit, as CSINode says it; empty where it does not."""
        found = self.api.get("CSINode", node)
        drivers = (found or {}).get("spec", {}).get("drivers") or []
        return [one["allocatable"]["count"] for one in drivers
                if one["name"] == DRIVER and "allocatable" in one]

    def driver_pods(self, app, node=None):
        pods = self.api.list("Pod", NAMESPACE, labels=f"app={app}")
        return [pod for pod in pods
                if (node is None or pod["spec"].get("nodeName") == node)
                and "deletionTimestamp" not in pod["metadata"]]

    def log(self, pod, container, *more):
        return self.kubectl("-n", NAMESPACE, "logs", pod, "-c", container, *more, check=False)

    def node(self, name):
        return next(node for node in self.nodes if node.name == name)


def condition(one, kind):
    for found in one.get("status", {}).get("conditions", []):
        if found["type"] == kind:
            return found["status"]
    return None


def rolled_out(deployment, replicas):
    status = deployment.get("status", {})
    return (status.get("observedGeneration") == deployment["metadata"]["generation"]
            and status.get("readyReplicas") == replicas
            and status.get("updatedReplicas") == replicas)

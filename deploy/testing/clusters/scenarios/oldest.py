"""The chart's objects and the manifests, shown to the API server of the oldest Kubernetes that the
chart supports. Nothing but that API server and an etcd of its own runs: no kubelet of that
release."""

import re
import subprocess

from rig import control_plane
from rig.cluster import NAMESPACE
from rig.network import CONTROL
from rig.workload import Space

from .expect import expect

_VERSION = "1.29.0"
_ETCD, _PORT = 2389, 6444
_NAME = "oldest-apiserver"
_MONITORING = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
_MONITORING_DEFINITIONS = ("servicemonitors", "prometheusrules")
_FOREIGN_KINDS = ("snapshot.storage.k8s.io/v1", "monitoring.coreos.com/v1")
# Of the components: policies need Kubernetes 1.30, and Kyverno reads its own exceptions.
_WITHOUT_POLICIES = ("failover/failover-rbac.yaml", "network-policy/networkpolicy.yaml", "alerts/alerts.yaml")


def play(rig):
    space = Space(rig, "oldest-kubernetes")
    control_plane.start_etcd(rig, "oldest-etcd", _ETCD)
    control_plane.start_api_server(rig, _NAME, "kube-apiserver-oldest", _PORT, _ETCD)
    server = f"--server=https://{CONTROL}:{_PORT}"
    rig.api.wait("oldest API server ready",
                 lambda: rig.kubectl(server, "get", "--raw=/readyz", check=False) == "ok", 120)
    said = rig.kubectl(server, "version", "-o", "json")
    expect('"minor": "29"' in said, f"the API server is of Kubernetes 1.29: {said}")
    # A pod needs it, and no controller-manager of that release runs.
    rig.kubectl(server, "create", "serviceaccount", "default", "-n", NAMESPACE)
    for definition in _definitions(rig):
        rig.kubectl(server, "apply", "-f", definition)
    rig.kubectl(server, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    chart = rig.source / "deploy/install/chart"
    sets = [None, rig.here / "values.yaml", *sorted((chart / "ci").glob("*.yaml"))]
    objects = sum(_shown(rig, server, _render(rig, chart, one), one) for one in sets)
    expect(objects > 200, f"{objects} objects were shown")
    space.step(f"chart: {objects} objects of {len(sets)} sets of values")
    manifests = rig.source / "deploy/install/manifests"
    texts = [rig.kubectl("kustomize", manifests),
             *((manifests / name).read_text() for name in _WITHOUT_POLICIES)]
    objects = sum(_shown(rig, server, _for_oldest(text), "manifests") for text in texts)
    space.step(f"manifests: {objects} objects")
    refused = _apply(rig, server, _render(rig, chart, None).replace("replicas:", "replcas:", 1))
    expect(refused.returncode != 0 and "replcas" in refused.stderr, "an unknown field is refused")
    rig.state.stop(_NAME, "oldest-etcd")


def _for_oldest(manifest):
    """Without the line that needs Kubernetes 1.34, as the manifests' README says."""
    return re.sub(r"(?m)^  nodeAllocatableUpdatePeriodSeconds: .*\n", "", manifest)


def _definitions(rig):
    crds = control_plane.module(rig, _MONITORING) / "example/prometheus-operator-crd"
    return [*control_plane.snapshot_definitions(rig),
            *(crds / f"monitoring.coreos.com_{kind}.yaml" for kind in _MONITORING_DEFINITIONS)]


def _render(rig, chart, values):
    versions = [word for version in _FOREIGN_KINDS for word in ("--api-versions", version)]
    values = ("--values", values) if values else ()
    return rig.run_helm("template", "release", chart, "--kube-version", _VERSION, *versions, *values,
                        "--set", "image.containerRegistry=rig.test")


def _shown(rig, server, text, what):
    """How many objects the API server would take."""
    done = _apply(rig, server, text)
    expect(done.returncode == 0, f"{what}: {done.stderr}")
    return len(done.stdout.splitlines())


def _apply(rig, server, text):
    return subprocess.run(
        [rig.programs / "kubectl", f"--kubeconfig={rig.certificates.path('admin.kubeconfig')}", server,
         "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"],
        input=text, capture_output=True, text=True)

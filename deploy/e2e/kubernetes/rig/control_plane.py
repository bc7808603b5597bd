"""etcd, API server, controller-manager, scheduler and snapshot-controller."""

import json
import subprocess
from pathlib import Path

from .network import CONTROL

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


def start(rig):
    """Starts all but the snapshot-controller, and returns once the API server is ready."""
    state, keys, programs = rig.state, rig.certificates, rig.programs
    audit = state.directory / "audit-policy.json"
    audit.write_text(json.dumps(AUDIT_POLICY))
    start_etcd(rig)
    start_api_server(rig)
    rig.api.wait("API server ready", rig.api.ready, 120)
    state.start("controller-manager", [
        programs / "kube-controller-manager",
        f"--kubeconfig={keys.path('controller-manager.kubeconfig')}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={keys.path('sa.key')}",
        f"--root-ca-file={keys.authority}",
        "--bind-address=127.0.0.1",
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=12s",
        "--v=1",
    ], "control")
    state.start("scheduler", [
        programs / "kube-scheduler",
        f"--kubeconfig={keys.path('scheduler.kubeconfig')}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--v=1",
    ], "control")


def start_etcd(rig):
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    rig.state.start("etcd", [
        rig.programs / "etcd",
        "--name=rig",
        f"--data-dir={rig.state.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=rig={peer}",
        "--unsafe-no-fsync",
    ], "control")


def start_api_server(rig):
    state, keys = rig.state, rig.certificates
    state.start("apiserver", [
        rig.programs / "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=0.0.0.0",
        f"--advertise-address={CONTROL}",
        "--secure-port=443",
        f"--tls-cert-file={keys.path('apiserver.crt')}",
        f"--tls-private-key-file={keys.path('apiserver.key')}",
        f"--client-ca-file={keys.authority}",
        f"--kubelet-client-certificate={keys.path('apiserver-kubelet-client.crt')}",
        f"--kubelet-client-key={keys.path('apiserver-kubelet-client.key')}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys.path('sa.pub')}",
        f"--service-account-signing-key-file={keys.path('sa.key')}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--audit-policy-file={state.directory / 'audit-policy.json'}",
        f"--audit-log-path={state.directory / 'audit.log'}",
        "--v=1",
    ], "control")


def start_snapshot_controller(rig):
    """Adds the VolumeSnapshot definitions and their controller, which no CSI driver ships."""
    module = "github.com/kubernetes-csi/external-snapshotter/client/v8"
    found = subprocess.run(["go", "list", "-m", "-f", "{{.Dir}}", module], cwd=rig.modules,
                           check=True, capture_output=True, text=True)
    definitions = Path(found.stdout.strip()) / "config/crd"
    for definition in sorted(definitions.glob("*.storage.k8s.io_*.yaml")):
        rig.kubectl("apply", "-f", definition)
    rig.state.start("snapshot-controller", [
        rig.programs / "snapshot-controller",
        f"--kubeconfig={rig.certificates.path('admin.kubeconfig')}",
        "--leader-election=false",
        "--http-endpoint=127.0.0.1:8390",
    ], "control")

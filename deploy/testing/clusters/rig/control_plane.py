"""etcd, API server, controller-manager, scheduler and snapshot-controller."""

import json
import subprocess
from pathlib import Path

from .network import CONTROL, ISSUER

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


def start_etcd(rig, name="etcd", port=2379):
    """Its peers' port is the next one."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
    rig.state.start(name, [
        rig.programs / "etcd",
        "--name=rig",
        f"--data-dir={rig.state.directory / name}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=rig={peer}",
        "--unsafe-no-fsync",
    ], "control")


def start_api_server(rig, name="apiserver", program="kube-apiserver", port=443, etcd=2379):
    state, keys = rig.state, rig.certificates
    state.start(name, [
        rig.programs / program,
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={CONTROL}",
        f"--secure-port={port}",
        f"--tls-cert-file={keys.path('apiserver.crt')}",
        f"--tls-private-key-file={keys.path('apiserver.key')}",
        f"--client-ca-file={keys.authority}",
        f"--kubelet-client-certificate={keys.path('apiserver-kubelet-client.crt')}",
        f"--kubelet-client-key={keys.path('apiserver-kubelet-client.key')}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer=https://{ISSUER}",
        f"--service-account-key-file={keys.path('sa.pub')}",
        f"--service-account-signing-key-file={keys.path('sa.key')}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--audit-policy-file={state.directory / 'audit-policy.json'}",
        f"--audit-log-path={state.directory / f'{name}-audit.log'}",
        "--v=1",
    ], "control")


def module(rig, name):
    """The directory of a Go module; without a version, of the one that the rig uses."""
    found = subprocess.run(["go", "mod", "download", "-json", name], cwd=rig.modules,
                           check=True, capture_output=True, text=True)
    return Path(json.loads(found.stdout)["Dir"])


def snapshot_definitions(rig):
    """The files that define VolumeSnapshots, which Kubernetes lacks."""
    client = module(rig, "github.com/kubernetes-csi/external-snapshotter/client/v8")
    return sorted((client / "config/crd").glob("*.storage.k8s.io_*.yaml"))


def start_snapshot_controller(rig):
    """Adds the VolumeSnapshot definitions and their controller, which no CSI driver ships."""
    for definition in snapshot_definitions(rig):
        rig.kubectl("apply", "-f", definition)
    rig.state.start("snapshot-controller", [
        rig.programs / "snapshot-controller",
        f"--kubeconfig={rig.certificates.path('admin.kubeconfig')}",
        "--leader-election=false",
        "--http-endpoint=127.0.0.1:8390",
    ], "control")

"""A node: containerd and kubelet in namespaces of their own.

kill -9 of a node's first process is a power failure: the kernel ends all of its processes, and its
mounts go with them. What kubelet and containerd keep on disk stays, as on a real node.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from .network import node_address
from .simulator import INSTANCES, TYPES, ZONE
from .state import CGROUP_PREFIX, cgroup_roots, remove_cgroups, start_time, until

# kubelet sets these for the whole machine; the rig puts the values back that it found.
_SYSCTLS = ("/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops")
DEVICES = "/var/lib/rig-devices"
STARTUP_TAINT = "ebs.csi.aws.com/agent-not-ready"


class Node:
    """One node, `n1` to `n5`."""

    def __init__(self, rig, number):
        self._rig = rig
        self.number = number
        self.name = f"n{number}"
        self.instance = INSTANCES[self.name]
        # As node groups are set up for the driver; a fresh cluster has no other node.
        self.taints = [{"key": STARTUP_TAINT, "effect": "NoExecute"}]
        self.directory = rig.state.directory / self.name
        for part in ("containerd", "kubelet", "cni", "log/pods", "run"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        rig.certificates.kubeconfig(f"kubelet-{self.name}",
                                    f"/O=system:nodes/CN=system:node:{self.name}")

    def start(self, kubelet=True):
        """Starts the node; without kubelet, `start_kubelet` starts that later."""
        self._make_cgroups()
        self._remember_sysctls()
        self._write_configuration()
        init = self.directory / "init"
        self._imported.unlink(missing_ok=True)
        init.write_text(self._init(kubelet))
        init.chmod(0o755)
        self._rig.state.start(f"node-{self.name}", [
            "unshare", "--mount", "--pid", "--fork", "--kill-child", init,
        ], self.name)

    @property
    def _imported(self):
        return self.directory / "images-imported"

    def has_images(self):
        """Whether containerd has all images, as if they were part of the machine's own image."""
        return self._imported.exists()

    def forget(self):
        """Removes what kubelet left on the disk: the next machine of this name is a new one."""
        shutil.rmtree(self.directory / "kubelet")
        (self.directory / "kubelet").mkdir()

    def first_process(self):
        """The id of the node's first process, None if the node is off."""
        outer = self._rig.state.pid(f"node-{self.name}")
        return None if outer is None else next(iter(children(outer)), None)

    def root(self):
        """The node's root directory, with the mounts that only the node sees."""
        return Path(f"/proc/{self.first_process()}/root")

    def cut_power(self):
        first = self.first_process()
        outer = self._rig.state.pid(f"node-{self.name}")
        if first:
            os.kill(first, signal.SIGKILL)
        if not until(lambda: outer is None or start_time(outer) is None, 20):
            raise RuntimeError(f"{self.name} does not end")

    def kubelet(self):
        """The process id of kubelet, None if it does not run."""
        return next(iter(self.processes(f"{self._rig.programs}/kubelet")), None)

    def kill_kubelet(self):
        pid = self.kubelet()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists(), 5)

    def start_kubelet(self):
        self.begin_kubelet()
        # The Node object still says Ready of the kubelet before.
        if not until(self._kubelet_answers, 30):
            raise RuntimeError(f"kubelet of {self.name} does not answer")

    def begin_kubelet(self):
        self._begin("kubelet.sh")

    def restart_containerd(self):
        """Kills containerd, whose containers go on, and starts it again."""
        (pid,) = self.processes("/containerd")
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists(), 5)
        self._begin("containerd.sh")
        if not until(lambda: self.processes("/containerd"), 10):
            raise RuntimeError(f"containerd of {self.name} does not start")

    def _begin(self, script):
        """Starts a script of the node's directory on the node."""
        subprocess.Popen(
            ["nsenter", "-t", str(self.first_process()), "--mount", "--pid", "--net",
             str(self.directory / script)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)

    def _kubelet_answers(self):
        try:
            socket.create_connection((node_address(self.number), 10250), timeout=1).close()
        except OSError:
            return False
        return True

    def volume_mounts(self):
        """The lines of the node's mount table that are CSI volumes."""
        first = self.first_process()
        if first is None:
            return []
        table = Path(f"/proc/{first}/mountinfo").read_text().splitlines()
        return [line for line in table
                if "kubernetes.io~csi" in line or "plugins/kubernetes.io/csi" in line]

    def processes(self, program):
        """Process ids on this node whose executable has this name."""
        first = self.first_process()
        if first is None:
            return []
        namespace = os.readlink(f"/proc/{first}/ns/pid")
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self._within(entry, namespace) and os.readlink(entry / "exe").endswith(program):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def _within(self, entry, namespace):
        """Containers have process id namespaces below the node's; their cgroups name the node."""
        if os.readlink(entry / "ns/pid") == namespace:
            return True
        return f"{CGROUP_PREFIX}-{self.name}/" in (entry / "cgroup").read_text()

    def _make_cgroups(self):
        remove_cgroups(self.name)
        for root in cgroup_roots(self.name):
            root.mkdir(exist_ok=True)
            for inherited in ("cpuset.cpus", "cpuset.mems"):
                if (root / inherited).exists():
                    (root / inherited).write_text((root.parent / inherited).read_text())

    def _remember_sysctls(self):
        remembered = self._rig.state.directory / "sysctl.json"
        if not remembered.exists():
            found = {path: Path(path).read_text() for path in _SYSCTLS}
            remembered.write_text(json.dumps(found))

    def _write_configuration(self):
        directory, keys = self.directory, self._rig.certificates
        (directory / "containerd.toml").write_text(self._containerd())
        self._write_runtime()
        (directory / "cni" / "10-rig.conflist").write_text(json.dumps({
            "cniVersion": "0.4.0",
            "name": "rig",
            "plugins": [{
                "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": f"{directory}/run/cni",
                    "ranges": [[{"subnet": f"10.78.{self.number}.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }],
        }))
        (directory / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        endpoint = f"unix://{directory}/run/containerd.sock"
        (directory / "kubelet.json").write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP_PREFIX}-{self.name}",
            "enforceNodeAllocatable": ["pods"],
            "containerRuntimeEndpoint": endpoint,
            "imageServiceEndpoint": endpoint,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(keys.authority)},
            },
            "authorization": {"mode": "Webhook"},
            "address": node_address(self.number),
            "healthzBindAddress": "127.0.0.1",
            "clusterDomain": "cluster.local",
            "resolvConf": f"{directory}/resolv.conf",
            "failSwapOn": False,
            # This machine may lack CAP_SYS_RESOURCE.
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%",
                             "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "4s",
            "syncFrequency": "10s",
            "volumeStatsAggPeriod": "10s",
            "volumePluginDir": "/var/lib/kubelet/volumeplugins",
            "podLogsDir": f"{directory}/log/pods",
            "registerWithTaints": self.taints,
            "providerID": f"aws:///{ZONE}/{self.instance}",
            "logging": {"verbosity": 3},
        }))
        labels = (f"topology.kubernetes.io/zone={ZONE},topology.kubernetes.io/region={ZONE[:-1]},"
                  f"node.kubernetes.io/instance-type={TYPES[self.name]},topology.rig.test/node={self.name}")
        self._write_script(
            "kubelet.sh",
            f"{self._rig.programs}/kubelet --config={directory}/kubelet.json "
            f"--kubeconfig={keys.path(f'kubelet-{self.name}.kubeconfig')} "
            "--root-dir=/var/lib/kubelet --cert-dir=/var/lib/kubelet/pki "
            f"--hostname-override={self.name} --node-ip={node_address(self.number)} "
            f"--node-labels={labels} >>{self._rig.state.log}/kubelet-{self.name}.log 2>&1")
        self._write_script(
            "containerd.sh", f"containerd -c {directory}/containerd.toml "
            f">>{self._rig.state.log}/containerd-{self.name}.log 2>&1")

    def _write_runtime(self):
        """Has each container see the node's boot, as kubelet does: a container mounts a /proc of its
        own, which shows the machine's."""
        hook = self._write_script(
            "boot-id.sh", f"""/bin/mount --bind {self.directory}/boot_id \\
    "$(/bin/sed -n 's/.*"bundle":"\\([^"]*\\)".*/\\1/p')/rootfs/proc/sys/kernel/random/boot_id\"""")
        made = subprocess.run(["ctr", "oci", "spec"], check=True, capture_output=True, text=True)
        spec = json.loads(made.stdout)
        # Kubelet's containers have containerd's own limits.
        spec["process"].pop("rlimits", None)
        spec["hooks"] = {"createContainer": [{"path": str(hook)}]}
        (self.directory / "runtime.json").write_text(json.dumps(spec))

    def _write_script(self, name, command):
        script = self.directory / name
        script.write_text(f"#!/bin/sh\nexec {command}\n")
        script.chmod(0o755)
        return script

    def _containerd(self):
        directory = self.directory
        return f"""version = 2
root = "{directory}/containerd"
state = "{directory}/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.opt",
]
[grpc]
  address = "{directory}/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "rig.test/pause:1"
  # Without CAP_SYS_RESOURCE the kernel refuses a lower score than containerd's own.
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{directory}/runtime.json"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{directory}/run/runc"
"""

    def _init(self, kubelet):
        directory, rig = self.directory, self._rig
        client = f"ctr -a {directory}/run/containerd.sock"
        return f"""#!/bin/bash
# The first process of node {self.name}.
mount --make-rshared /
mount -t proc proc /proc
cat /proc/sys/kernel/random/uuid >{directory}/boot_id
mount --bind {directory}/boot_id /proc/sys/kernel/random/boot_id
# As after a boot. The host's own directories of these names stay as they are.
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs {directory}/run
mkdir -p /run/containerd /run/netns /var/lib/kubelet /var/lib/cni /var/log/containers {DEVICES}
# A mount of its own peer group: otherwise each volume shows twice.
mount --bind {directory}/kubelet /var/lib/kubelet
mount --make-private /var/lib/kubelet
mount --make-shared /var/lib/kubelet
mount --bind {rig.simulator.device_directory(self.name)} {DEVICES}
trap : TERM
{directory}/containerd.sh &
for attempt in $(seq 100); do {client} version >/dev/null 2>&1 && break; sleep 0.1; done
for image in {rig.images}/*.tar; do
    name=$(basename "$image")
    if ! cmp -s "$image.digest" {directory}/containerd/imported-$name; then
        {client} -n k8s.io images import "$image" && cp "$image.digest" {directory}/containerd/imported-$name
    fi
done >>{rig.state.log}/images-{self.name}.log 2>&1
touch {self._imported}
# containerd answers before its service for kubelet is up, and kubelet ends where that is not.
for attempt in $(seq {5 if kubelet else 0}); do
    {directory}/kubelet.sh &
    sleep 1
    kill -0 $! 2>/dev/null && break
done
# Reaps what containers leave.
while :; do wait -n || sleep 1; done
"""


def children(pid):
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []

"""Claims, pods and StatefulSets that scenarios use, and what is true after each scenario."""

import time

from . import audit
from .cluster import ACCOUNTS, CONTROLLER, NAMESPACE, NODE, condition

BUSYBOX = "rig.test/busybox:1"
WRITER = "while :; do date +%s.%N >>/data/log; sync; sleep .2; done"
SLEEPER = "sleep 100000"
BLOCK_DEVICE = "/dev/xvdz"


class Space:
    """One scenario's namespace, with a clock that starts when it is made."""

    def __init__(self, rig, name):
        self.rig = rig
        self.api = rig.api
        self.name = name
        self._started = time.monotonic()
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.api.wait("service account of the namespace",
                      lambda: self.api.get("ServiceAccount", "default", name), 30)

    def step(self, text):
        print(f"  {time.monotonic() - self._started:7.2f} s  {text}", flush=True)

    def claim(self, name, size="1Gi", kind="ebs-ext4", mode="Filesystem", source=None,
              access="ReadWriteOnce", volume=None):
        spec = {
            "storageClassName": kind,
            "accessModes": [access],
            "volumeMode": mode,
            "resources": {"requests": {"storage": size}},
        }
        if source:
            spec["dataSource"] = source
        if volume:
            spec["volumeName"] = volume
        self.api.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                        "metadata": {"name": name, "namespace": self.name}, "spec": spec})

    def pod(self, name, node, claim, command=WRITER, block=False, host_root=False):
        spec = pod_spec(command, node, claim, block)
        if host_root:
            spec["volumes"] = [{"name": "root", "hostPath": {"path": "/"}}]
            spec["containers"][0]["volumeMounts"] = [{"name": "root", "mountPath": "/host"}]
        self.start(name, spec)

    def start(self, name, spec):
        """Makes a pod of this specification."""
        self.api.apply({"apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": name, "namespace": self.name}, "spec": spec})

    def stateful_set(self, name, replicas, command, kind="ebs-ext4", prefer=None, change=None):
        """`change` changes the pods' specification."""
        spec = pod_spec(command, None, None, False)
        spec["containers"][0]["volumeMounts"] = [{"name": "volume", "mountPath": "/data"}]
        if prefer:
            expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [prefer]}
            spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": {"matchExpressions": [expression]}}]}}
        if change:
            change(spec)
        self.api.apply({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {
                "serviceName": name,
                "replicas": replicas,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
                "volumeClaimTemplates": [{
                    "metadata": {"name": "volume"},
                    "spec": {"storageClassName": kind, "accessModes": ["ReadWriteOnce"],
                             "resources": {"requests": {"storage": "1Gi"}}},
                }],
            },
        })

    def get(self, kind, name):
        return self.api.get(kind, name, self.name)

    def ready(self, pod):
        found = self.get("Pod", pod)
        return found is not None and condition(found, "Ready") == "True"

    def wait_ready(self, pod, seconds=120):
        try:
            self.api.wait(f"pod {pod} ready", lambda: self.ready(pod), seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.why(pod)}") from None

    def why(self, name):
        """The last events about an object."""
        events = self.api.list("Event", self.name)
        told = [f"    {one['reason']}: {one['message'].strip()}" for one in events
                if one["involvedObject"].get("name") == name]
        return "\n".join(told[-8:])

    def node_of(self, pod):
        found = self.get("Pod", pod)
        return found["spec"].get("nodeName") if found else None

    def run(self, pod, script, check=True):
        return self.rig.execute(self.name, pod, script, check).strip()

    def delete_pod(self, name, seconds=120):
        self.api.delete("Pod", name, self.name)
        self.api.wait(f"pod {name} gone", lambda: self.get("Pod", name) is None, seconds)

    def resize(self, claim, size):
        change = {"spec": {"resources": {"requests": {"storage": size}}}}
        self.api.patch("PersistentVolumeClaim", claim, self.name, change)

    def attached(self, claim):
        """Whether Kubernetes has the claim's volume attached; None where nobody asks for that."""
        name = self.get("PersistentVolumeClaim", claim)["spec"].get("volumeName")
        for one in self.api.list("VolumeAttachment"):
            if one["spec"]["source"].get("persistentVolumeName") == name:
                return one.get("status", {}).get("attached")
        return None

    def capacity(self, claim):
        return self.get("PersistentVolumeClaim", claim)["status"].get("capacity", {}).get("storage")

    def wait_capacity(self, claim, size, seconds=90):
        self.api.wait(f"claim {claim} has {size}", lambda: self.capacity(claim) == size, seconds)

    def snapshot(self, name, claim, seconds=90):
        self.api.apply({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {"volumeSnapshotClassName": "ebs", "source": {"persistentVolumeClaimName": claim}},
        })
        self.api.wait(f"snapshot {name} ready", lambda: (self.get("VolumeSnapshot", name) or {})
                      .get("status", {}).get("readyToUse"), seconds)

    def volume_of(self, claim):
        """The id of the volume that a claim is bound to."""
        name = self.get("PersistentVolumeClaim", claim)["spec"].get("volumeName")
        found = self.api.get("PersistentVolume", name) if name else None
        return found["spec"]["csi"]["volumeHandle"] if found else None

    def remove(self, seconds=180):
        """Deletes all that the scenario made and waits until nothing of it is left."""
        delete_all(self.rig, self.name)
        self.api.wait("pods gone", lambda: not self.api.list("Pod", self.name), seconds)
        self.api.wait("nothing left", lambda: not left_over(self.rig), seconds)
        self.step("all deleted: no volume, attachment, snapshot, mount or loop device left")


def delete_all(rig, namespace):
    """Deletes what has volumes in a namespace."""
    for kind in ("StatefulSet", "Pod", "VolumeGroupSnapshot", "VolumeSnapshot", "PersistentVolumeClaim"):
        for one in rig.api.list(kind, namespace):
            rig.api.delete(kind, one["metadata"]["name"], namespace)


def clear_after_failure(rig, seconds=180):
    """Installs the driver as usual and removes what a failed scenario left."""
    rig.kubectl("-n", NAMESPACE, "delete", f"deployment/{CONTROLLER}", f"daemonset/{NODE}",
                "--ignore-not-found")
    rig.install(flags=("--take-ownership", "--force-conflicts"))
    for one in rig.api.list("Namespace"):
        if not one["metadata"]["name"].startswith("kube-"):
            delete_all(rig, one["metadata"]["name"])
    rig.api.wait("nothing left", lambda: not left_over(rig), seconds)
    rig.audited_from = audit.now()


def pod_spec(command, node, claim, block):
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        # The shell is the first process and would not end at SIGTERM.
        "command": ["sh", "-c", f"trap 'exit 0' TERM; {command} & wait"],
    }
    spec = {"terminationGracePeriodSeconds": 2, "containers": [container]}
    if claim:
        spec["volumes"] = [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}]
        if block:
            container["volumeDevices"] = [{"name": "volume", "devicePath": BLOCK_DEVICE}]
        else:
            container["volumeMounts"] = [{"name": "volume", "mountPath": "/data"}]
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return spec


def left_over(rig):
    """What must not be there once everything was deleted."""
    found = []
    for kind in ("PersistentVolume", "VolumeAttachment", "VolumeGroupSnapshotContent",
                 "VolumeSnapshotContent"):
        found += [f"{kind} {one['metadata']['name']}" for one in rig.api.list(kind)]
    live = rig.simulator.invariants()["live"]
    found += [f"{count} {what} in EC2" for what, count in live.items() if count]
    for node in rig.nodes:
        found += [f"{node.name}: {line}" for line in node.volume_mounts()]
    for directory in (rig.simulator.directory / "dev").glob("*"):
        found += [str(path) for path in directory.glob("loop*")]
    return found


def check(rig):
    """The faults that the end of a scenario shows, empty if there are none."""
    invariants = rig.simulator.invariants()
    faults = [f"EC2: {one['rule']}: {one['detail']}" for one in invariants["violations"]]
    faults += left_over(rig)
    faults += [f"refused by RBAC: {one}" for one in sorted(set(audit.forbidden(rig, ACCOUNTS)))]
    return faults

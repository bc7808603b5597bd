"""ec2-sim with loop devices, and the ways on which pods reach it."""

import json
import os
import shutil
import stat
import subprocess

from .network import CONTROL, ISSUER, METADATA
from .state import NODES, until

INSTANCES = {f"n{number}": f"i-0aaaaaaaaaaaaaaa{number}" for number in NODES}
# How many volumes fit: 31, 31, 26, 63, 63. Only m5.large shares its slots with network interfaces.
TYPES = {"n1": "m7i.large", "n2": "m7i.large", "n3": "m5.large", "n4": "m7i.24xlarge",
         "n5": "m7i.24xlarge"}
ZONE = "us-east-1a"
EC2_PORT = 4599
_ACCOUNT = "111122223333"
# A role as `credentials.md` makes it for IRSA. A caller with other keys may do everything.
ROLE = f"arn:aws:iam::{_ACCOUNT}:role/ebs-csi"
_ROLE_POLICIES = ("base", "modify", "snapshots")

_SCENARIO = {
    "seed": 1,
    "profile": "fast",
    "account": _ACCOUNT,
    "region": "us-east-1",
    "zones": [{"name": ZONE, "id": "use1-az6"}, {"name": "us-east-1b", "id": "use1-az1"}],
    "instances": [
        {"id": instance, "type": TYPES[node], "zone": ZONE, "tags": {"Name": node}}
        for node, instance in INSTANCES.items()
    ],
}


def _role(directory):
    """The role of the policies in a directory; it trusts this cluster's tokens."""
    trust = (directory / "trust-irsa.json").read_text().replace("oidc.example.com/id/0", ISSUER)
    return {"arn": ROLE, "trust": json.loads(trust),
            "policies": {name: json.loads((directory / f"{name}.json").read_text())
                         for name in _ROLE_POLICIES}}


class Simulator:
    """The simulated EC2."""

    def __init__(self, rig):
        self._rig = rig
        self.directory = rig.state.directory / "ec2"
        self._control = self.directory / "control.sock"
        # A copy: the keeper cleans up with it whatever becomes of the build.
        self._program = rig.state.directory / "simulator"
        shutil.copy(rig.built / "ec2-sim", self._program)

    def start(self):
        state = self._rig.state
        if self._rig.group_snapshots:
            # ec2-sim takes snapshots of several volumes under a writer on btrfs alone.
            disk = state.directory / "ec2.btrfs"
            disk.touch()
            os.truncate(disk, 1 << 38)
            self.directory.mkdir()
            subprocess.run(["mkfs.btrfs", "-q", disk], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["mount", "-o", "loop", disk, self.directory], check=True)
        scenario = state.directory / "ec2.json"
        role = _role(self._rig.source / "policy/iam")
        scenario.write_text(json.dumps({**_SCENARIO, "iam": {"principals": [role]}}))
        ready = state.directory / "ec2.ready"
        with open(ready, "wb") as output:
            state.start("ec2-sim", [
                self._program, "serve", "--state-dir", self.directory, "--scenario", scenario,
                "--devices", "loop", "--log-level", "warn",
            ], "control", stdout=output)
        if not until(lambda: ready.read_text().endswith("\n"), 20):
            raise RuntimeError(f"ec2-sim did not start, see {state.log}/ec2-sim.log")
        addresses = json.loads(ready.read_text())
        self._forward("control", f"{CONTROL}:{EC2_PORT}", addresses["ec2"])
        for number, (node, instance) in enumerate(INSTANCES.items(), 1):
            inner = f"{CONTROL}:{EC2_PORT + number}"
            self._forward("control", inner, addresses["imds"][instance])
            self._forward(node, f"{METADATA}:80", inner)
            self._fill(self.device_directory(node))

    def _forward(self, namespace, listen, to):
        """The simulator listens on loopback addresses only."""
        address, port = listen.split(":")
        to = to.removeprefix("http://")
        self._rig.state.start(f"forward-{namespace}-{port}", [
            "socat", f"TCP-LISTEN:{port},bind={address},reuseaddr,fork", f"TCP:{to}",
        ], namespace)

    def device_directory(self, node):
        return self.directory / "dev" / INSTANCES[node]

    @staticmethod
    def _fill(directory):
        """What else a container needs of /dev, which this directory becomes."""
        directory.mkdir(parents=True, exist_ok=True)
        nodes = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8),
                 "urandom": (1, 9), "tty": (5, 0)}
        for name, (major, minor) in nodes.items():
            path = directory / name
            if not path.exists():
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
                path.chmod(0o666)
        links = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
                 "stderr": "/proc/self/fd/2"}
        for name, target in links.items():
            if not (directory / name).is_symlink():
                (directory / name).symlink_to(target)

    def image(self, volume):
        """The file with a volume's content."""
        return self.directory / "volumes" / f"{volume}.img"

    def request(self, path, method="GET", body=None):
        command = ["curl", "-sS", "--fail-with-body", "--unix-socket", str(self._control),
                   "-X", method, f"http://sim{path}"]
        if body is not None:
            command += ["-H", "content-type: application/json", "-d", json.dumps(body)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return json.loads(answer) if answer else None

    def invariants(self):
        return self.request("/v1/invariants")

    def calls(self, action):
        """All requests for an action that the simulator has answered."""
        return self.request(f"/v1/journal?limit=100000&action={action}")["records"]

    def latency(self, **change):
        self.request("/v1/latency", "PUT", change)

    def power(self, node, verb):
        """Starts or stops a node's instance."""
        self.request(f"/v1/instances/{INSTANCES[node]}/{verb}", "POST", {})

    def instance_state(self, node):
        (realm,) = self.request("/v1/state")["realms"]
        states = {one["id"]: one["state"] for one in realm["instances"]}
        return states[INSTANCES[node]]

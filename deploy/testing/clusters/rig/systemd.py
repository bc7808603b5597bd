"""A systemd on a node, for the unit of `deploy/install/systemd` alone."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from .node import DEVICES, children
from .state import CGROUP_PREFIX, until

UNIT = "ebs-csi-mount-helper"
_HIERARCHIES = ("systemd", "devices", "unified")
# The unit's dependencies that a whole installation has units for.
_TARGETS = ("basic", "multi-user", "shutdown", "sysinit")


class Systemd:
    """The first process of a process id namespace beneath the node's. It knows no unit but the
    helper's and the targets that the unit names, so it starts nothing else."""

    def __init__(self, rig, node):
        self._node = node
        self._source = rig.source / "deploy/install/systemd"
        self._program = rig.built / UNIT
        self.log = rig.state.log / f"helper-{node.name}.log"
        self._first = None
        units = self._write_units(node.directory / "units")
        script = node.directory / "systemd.sh"
        script.write_text(self._script(units))
        script.chmod(0o755)
        cgroups = " ".join(f"/sys/fs/cgroup/{name}/{CGROUP_PREFIX}-{node.name}/systemd"
                           for name in _HIERARCHIES)
        started = rig.state.start(f"systemd-{node.name}", [
            "bash", "-ec", f'for one in {cgroups}; do mkdir -p $one; echo $$ >$one/cgroup.procs; done;'
            # Of the node's process id namespace as well: it ends when the node loses its power.
            f'exec nsenter -t {node.first_process()} --mount --pid unshare --mount '
            f'--propagation unchanged --pid --cgroup --fork --kill-child {script}',
        ], node.name)
        if not until(lambda: self._runs(started.pid), 20):
            raise RuntimeError(f"systemd does not start on {node.name}")

    def _runs(self, outer):
        unshare = next(iter(children(outer)), None)
        self._first = unshare and next(iter(children(unshare)), None)
        return self._first and self.control("is-system-running") == "running"

    def end(self):
        """Ends systemd at once. Its copies of the node's mounts would keep volumes in use."""
        os.kill(self._first, signal.SIGKILL)

    def give_directories(self):
        """Has systemd-tmpfiles make the directories of the agent's sockets."""
        self._enter("systemd-tmpfiles", "--create", self._source / "ebs-csi.conf")

    def control(self, *arguments):
        """systemctl's standard output."""
        return self._enter("systemctl", *arguments, check=arguments[0] in ("start", "stop", "kill"))

    def properties(self, *names):
        """Properties of the helper's unit, as systemd has them."""
        lines = self.control("show", UNIT, "--property", ",".join(names)).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def devices(self):
        """The devices that the kernel permits to the helper (devices.list of cgroups)."""
        group = f"{CGROUP_PREFIX}-{self._node.name}/systemd/system.slice/{UNIT}.service"
        return Path(f"/sys/fs/cgroup/devices/{group}/devices.list").read_text().splitlines()

    def _enter(self, *command, check=True):
        done = subprocess.run(
            ["nsenter", "-t", str(self._first), "--mount", "--pid", *map(str, command)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command[0]} on {self._node.name}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _write_units(self, directory):
        shutil.rmtree(directory, ignore_errors=True)
        changed = directory / f"{UNIT}.service.d"
        changed.mkdir(parents=True)
        unit = (self._source / f"{UNIT}.service").read_text()
        (directory / f"{UNIT}.service").write_text(unit)
        (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
        flags = line.split(" ", 1)[1]
        (changed / "rig.conf").write_text(
            f"[Service]\nExecStart=\nExecStart={self._program} {flags} --sandbox --paths=kubernetes\n"
            f"StandardError=append:{self.log}\n")
        for target in _TARGETS:
            (directory / f"{target}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        return directory

    def _script(self, units):
        return f"""#!/bin/bash
# The first process of systemd's namespaces on node {self._node.name}. Only /run and the mounts
# beneath /var/lib are the node's own.
set -e
for path in /proc /sys /dev; do mount --make-rprivate $path; done
mount -t proc proc /proc
mount --bind {DEVICES} /dev
umount -R /sys/fs/cgroup
mount -t tmpfs tmpfs /sys/fs/cgroup
for name in {' '.join(_HIERARCHIES)}; do mkdir /sys/fs/cgroup/$name; done
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
mount -t cgroup -o devices cgroup /sys/fs/cgroup/devices
mount -t cgroup2 cgroup /sys/fs/cgroup/unified
mount -o bind,remount,ro /sys
export container=rig SYSTEMD_UNIT_PATH={units}
exec {_systemd()} --unit=multi-user.target --show-status=0 --log-target=console
"""


def _systemd():
    return next(path for path in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd")
                if Path(path).exists())

"""The state directory: what the rig started and made, so that anything can end it.

`processes.json` names each process by its id and start time, so that a process that was given the
same id later is left alone. `end` removes everything that the rig made and works from the state
directory alone: the keeper calls it when the rig was killed.
"""

import fcntl
import json
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

# The nodes that may join; `up` starts two, scenarios have the others join and leave.
NODES = (1, 2, 3, 4, 5)
NAMESPACES = {"control": "ebs-csi-kcp", **{f"n{number}": f"ebs-csi-kn{number}" for number in NODES}}
CGROUP_PREFIX = "ebs-csi-rig"
# ioctls of loop devices (linux/loop.h).
_LOOP_CLR_FD = 0x4C01
_LOOP_GET_STATUS64 = 0x4C05


def start_time(pid):
    """The start time of a process in clock ticks since boot, None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def alive(pid, started):
    return started is not None and start_time(pid) == started


class State:
    """Processes by name, and the paths of the state directory."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.log = self.directory / "log"
        self.log.mkdir(parents=True, exist_ok=True)
        self._file = self.directory / "processes.json"

    def processes(self):
        try:
            return json.loads(self._file.read_text())
        except OSError:
            return {}

    def _write(self, processes):
        unfinished = self._file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(processes))
        unfinished.rename(self._file)

    def record(self, name, pid):
        processes = self.processes()
        processes[name] = [pid, start_time(pid)]
        self._write(processes)

    def start(self, name, arguments, namespace=None, environment=None, stdout=None):
        """Starts a process of its own session; its output goes to log/NAME.log."""
        command = [str(argument) for argument in arguments]
        if namespace:
            # `ip netns exec` would mount /sys anew and hide the cgroups.
            command = ["nsenter", f"--net=/run/netns/{NAMESPACES[namespace]}", *command]
        log = open(self.log / f"{name}.log", "ab")
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout or log,
            stderr=log,
            start_new_session=True,
            env=environment,
        )
        log.close()
        self.record(name, process.pid)
        return process

    def pid(self, name):
        pid, started = self.processes().get(name, (None, None))
        return pid if pid and alive(pid, started) else None

    def stop(self, *names, first=signal.SIGTERM, patience=5.0):
        for name in names:
            pid = self.pid(name)
            if pid is None:
                continue
            started = start_time(pid)
            for number, wait in ((first, patience), (signal.SIGKILL, 5.0)):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    break
                if until(lambda: not alive(pid, started), wait):
                    break

    def end(self):
        """Ends all processes and removes namespaces, cgroups and loop devices. Safe to repeat."""
        nodes = [name for name in self.processes() if name.startswith("node-")]
        for name in nodes:
            # `unshare --kill-child` takes the node's first process along, and that all others.
            self.stop(name, first=signal.SIGKILL)
        for name in reversed(list(self.processes())):
            self.stop(name, patience=3.0)
        detach_stacked_loops(self.directory)
        simulator = self.directory / "simulator"
        if simulator.exists():
            subprocess.run([str(simulator), "clean", "--state-dir", str(self.directory / "ec2")],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if os.path.ismount(self.directory / "ec2"):
            subprocess.run(["umount", self.directory / "ec2"], check=False)
        for namespace in NAMESPACES.values():
            if Path(f"/run/netns/{namespace}").exists():
                subprocess.run(["ip", "netns", "del", namespace], check=False)
        for number in NODES:
            remove_cgroups(f"n{number}")
        restore = self.directory / "sysctl.json"
        if restore.exists():
            for path, value in json.loads(restore.read_text()).items():
                Path(path).write_text(value)


def detach_stacked_loops(directory):
    """Detaches the loop devices that kubelets put on raw volumes, which a kubelet that was killed
    leaves. A volume's own loop device stays as long as one of them has it open."""
    own, others = set(), []
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        device = Path("/dev") / entry.parts[3]
        try:
            is_own = entry.read_text().startswith(f"{directory}/")
            own.update({device.stat().st_rdev} if is_own else ())
        except OSError:
            continue  # It was detached meanwhile.
        if not is_own:
            others.append(device)
    for device in others:
        try:
            with open(device, "rb") as file:
                status = fcntl.ioctl(file, _LOOP_GET_STATUS64, bytes(232))
                # struct loop_info64 begins with lo_device, lo_inode and lo_rdevice.
                if struct.unpack_from("QQQ", status)[2] in own:
                    fcntl.ioctl(file, _LOOP_CLR_FD)
        except OSError:
            continue


def cgroup_roots(node):
    """The cgroup of a node in each hierarchy of version 1."""
    roots = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, _ = line.split(":", 2)
        name = controllers.removeprefix("name=")
        for directory in (name, controllers):
            if name and Path(f"/sys/fs/cgroup/{directory}").is_dir():
                roots.append(Path(f"/sys/fs/cgroup/{directory}/{CGROUP_PREFIX}-{node}"))
                break
    return roots


def remove_cgroups(node):
    unified = Path(f"/sys/fs/cgroup/unified/{CGROUP_PREFIX}-{node}")
    for root in [*cgroup_roots(node), unified]:
        if not root.is_dir():
            continue
        for directory, _, _ in os.walk(root, topdown=False):
            until(lambda: _removed(directory), 3.0)


def _removed(directory):
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def until(holds, seconds, pause=0.05):
    """Waits until the predicate holds; False if it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True

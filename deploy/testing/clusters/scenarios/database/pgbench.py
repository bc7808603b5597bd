"""pgbench with PostgreSQL on a volume of the driver, and the same on a bare mount: a copy of the
volume's disk on the same node, mounted without the driver, which a pod has by hostPath."""

import contextlib
import os
import re
import subprocess
from pathlib import Path

from rig.images import POSTGRESQL_PROGRAMS
from rig.workload import SLEEPER, pod_spec

from ..expect import expect

# Each of the two comes first as often as the other.
_ROUNDS = 4
_PGBENCH = f"{POSTGRESQL_PROGRAMS}/pgbench --host=/tmp --username=postgres"
_CHECKPOINT = f"echo CHECKPOINT | {_PGBENCH} --no-vacuum --transactions=1 --file=-"
# The driver mounts an ext4 that it has not just made with what the superblock says of errors.
_OPTIONS = {"ext4": "defaults", "xfs": "nouuid"}
_SECURITY = {"nodev", "nosuid"}


def compare(space, node, file_system, as_postgresql):
    """The transactions per second of each round, on the volume and on the bare mount."""
    volume, bare = names = f"volume-{file_system}", f"bare-{file_system}"
    _formatted(space, node, volume, file_system)
    with _bare_mount(space, node, volume, file_system) as path:
        try:
            for name in names:
                spec = pod_spec(SLEEPER, node, name, False)
                if name == bare:
                    spec["volumes"] = [{"name": "volume", "hostPath": {"path": path}}]
                as_postgresql(spec)
                space.start(name, spec)
            for name in names:
                space.wait_ready(name)
                space.run(name, f"{_PGBENCH} --initialize --quiet --scale=5")
            mounts = [_mount(space, name) for name in names]
            expect(mounts[0] == mounts[1], f"both mounts are alike: {mounts}")
            found = {name: [] for name in names}
            for turn in range(_ROUNDS):
                for name in names if turn % 2 == 0 else reversed(names):
                    found[name].append(_transactions(space, name, names))
        finally:
            for name in names:
                space.delete_pod(name)
    return found[volume], found[bare]


def _formatted(space, node, claim, file_system):
    """Makes a claim whose volume the driver has formatted, and which no node has."""
    space.claim(claim, kind=f"ebs-{file_system}")
    space.pod(claim, node, claim, SLEEPER)
    space.wait_ready(claim)
    space.delete_pod(claim)
    space.api.wait("volume detached", lambda: space.attached(claim) is None, 90)


def _transactions(space, pod, pods):
    for each in pods:
        # So that the others write nothing meanwhile, and each run begins with the same log: the
        # first change of a page after a checkpoint writes the whole page.
        space.run(each, _CHECKPOINT)
    told = space.run(pod, f"{_PGBENCH} --client=4 --time=10")
    return float(re.search(r"^tps = ([0-9.]+) ", told, re.MULTILINE).group(1))


def _mount(space, pod):
    """What may change the speed of a pod's volume: the options of mount, file system and loop
    device."""
    (line,) = space.run(pod, "grep ' /data ' /proc/self/mountinfo").splitlines()
    own, _, of_file_system = line.partition(" - ")
    device, options = own.split()[2], own.split()[5]
    loop = Path("/sys/dev/block", device)
    of_device = [(loop / name).read_text().strip() for name in
                 ("size", "loop/dio", "queue/logical_block_size", "queue/scheduler")]
    return set(options.split(",")) - _SECURITY, set(of_file_system.split()[2].split(",")), of_device


@contextlib.contextmanager
def _bare_mount(space, node, claim, file_system):
    """Mounts a copy of a detached volume's disk on a node, in the directory that this yields."""
    simulator, node = space.rig.simulator, space.rig.node(node)
    image, path = simulator.image(f"bare-{file_system}"), f"/var/lib/bare-{file_system}"
    directory = node.root() / path.lstrip("/")
    on_node = ("nsenter", "-t", node.first_process(), "--mount")
    with contextlib.ExitStack() as undo:
        undo.callback(image.unlink, missing_ok=True)
        original = simulator.image(space.volume_of(claim))
        # A write to a hole allocates blocks. The volume's own file is filled first, then the copy.
        for target in (original, image):
            _run("dd", f"if={original}", f"of={target}", "bs=1M", "conv=notrunc,fsync")
        directory.mkdir()
        undo.callback(directory.rmdir)
        device = _run("losetup", "--find", "--show", "--sector-size=512", "--direct-io=on", image)
        try:
            _run(*on_node, "mount", "-t", file_system, "-o", _OPTIONS[file_system], device, path)
        finally:
            # The kernel detaches it with its last user, also where this run is killed.
            _run("losetup", "--detach", device)
        undo.callback(_run, *on_node, "umount", path)
        # As kubelet does it for a claim of a pod with fsGroup.
        os.chown(directory, -1, 999)
        directory.chmod(0o2775)
        yield path


def _run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout.strip()

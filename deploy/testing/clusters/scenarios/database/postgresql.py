"""Debian's PostgreSQL as a StatefulSet on ext4 and on XFS, under a load that never stops: no fault and
no change loses an acknowledged commit. At last pgbench, without that load."""

import os
import time

from rig.cluster import DRIVER
from rig.images import POSTGRESQL, POSTGRESQL_PROGRAMS
from rig.workload import SLEEPER, Space, pod_spec

from ..dead_node import SAFE_DETACH, leader, returns
from ..expect import Skipped, expect
from ..kills import kill_program, node_pod_recovers
from ..uses import ec2_volume
from .client import Client, connect
from .pgbench import compare

_FILES = "/data/files"
_START = f"""cd {POSTGRESQL_PROGRAMS}
if [ ! -s {_FILES}/PG_VERSION ]; then
    ./initdb -D {_FILES} --username=postgres --locale=C --encoding=UTF8 --data-checksums --auth=trust
    echo 'host all all all trust' >>{_FILES}/pg_hba.conf
fi
exec ./postgres -D {_FILES} -c 'listen_addresses=*' -c unix_socket_directories=/tmp \\
    -c shared_buffers=32MB -c checkpoint_timeout=30s -c max_wal_size=64MB"""
# From the power failure until PostgreSQL has recovered on the other node.
_READY_ELSEWHERE = 60
_FILE_SYSTEMS = ("ext4", "xfs")


class Database:
    """One PostgreSQL and its client."""

    def __init__(self, space, file_system, node):
        self.file_system, self.kind = file_system, f"ebs-{file_system}"
        self.pod, self.claim = f"{file_system}-0", f"volume-{file_system}-0"
        self.client = Client(space, self.pod)
        space.stateful_set(file_system, 1, SLEEPER, self.kind, node, as_postgresql)


def as_postgresql(spec):
    """Changes a pod's specification to one that runs PostgreSQL on the pod's volume."""
    spec["containers"][0].update({
        "image": POSTGRESQL,
        "command": ["sh", "-c", _START],
        "readinessProbe": {"exec": {"command": [f"{POSTGRESQL_PROGRAMS}/pg_isready", "-h", "/tmp"]},
                           "periodSeconds": 1, "timeoutSeconds": 5},
        # SIGTERM alone would have it wait until its clients leave.
        "lifecycle": {"preStop": {"exec": {"command": [
            f"{POSTGRESQL_PROGRAMS}/pg_ctl", "stop", "-D", _FILES, "-m", "fast"]}}},
    })
    spec["terminationGracePeriodSeconds"] = 60
    # PostgreSQL refuses files that kubelet has opened to the group anew.
    spec["securityContext"] = {"runAsUser": 999, "runAsGroup": 999, "fsGroup": 999,
                               "fsGroupChangePolicy": "OnRootMismatch"}


def play(rig):
    if not (rig.images / "postgresql.tar").exists():
        raise Skipped("Debian's postgresql-15 cannot be had")
    rig.install(SAFE_DETACH)
    rig.wait_installed()
    rig.wait_controllers_apart()
    chosen = (os.environ.get("RIG_STEPS") or ",".join([*_STEPS, "pgbench"])).split(",")
    space = Space(rig, "database")
    # The node whose loss costs the driver most.
    node = leader(rig)
    databases = [Database(space, file_system, node) for file_system in _FILE_SYSTEMS]
    try:
        for one in databases:
            space.wait_ready(one.pod)
            connect(space.api, space.name, one.pod).query(
                "CREATE TABLE numbers (n bigint PRIMARY KEY, filler text)")
            one.client.start()
        for one in databases:
            one.client.wait_commits(100)
        space.step(f"PostgreSQL on ext4 and on XFS ready on {node}, clients commit")
        for name, step in _STEPS.items():
            if name in chosen:
                step(rig, space, databases)
    finally:
        for one in databases:
            if one.client.is_alive():
                one.client.end()
    space.remove()
    if "pgbench" in chosen:
        _pgbench(rig, space, node)
        space.remove()
    rig.install()
    rig.wait_installed()


def _during(space, databases, what, action):
    """Does something under load, and shows that nothing acknowledged is lost, and each database's
    longest pause."""
    for one in databases:
        one.client.wait_commits()
    started = time.monotonic()
    action()
    for one in databases:
        one.client.wait_commits()
    for one in databases:
        pause = one.client.longest_pause(started)
        numbers = one.client.acknowledged()
        found = one.client.expect_all(numbers)
        _note(space.rig, f"pauses-{one.file_system}", f"PostgreSQL on {one.file_system}: longest pause "
              "between two acknowledged commits", what, pause)
        space.step(f"{what}, {one.file_system}: {len(numbers)} acknowledged commits, {found} found, "
                   f"longest pause {pause:.2f} s")


def _note(rig, key, title, label, *samples, unit="s", role="ours"):
    build = "" if rig.profile == "release" else " (development build)"
    rig.results.add(f"database-{key}", title + build, unit, label, *samples, role=role)


def _kills(rig, space, databases):
    node = space.node_of(databases[0].pod)
    for program in ("ebs-csi-mount-helper", "ebs-csi-node-agent"):
        def kill():
            kill_program(rig, node, program)
            node_pod_recovers(rig)
            rig.api.wait(f"{program} runs again", lambda: rig.node(node).processes(program), 60)
        _during(space, databases, f"{program.removeprefix('ebs-csi-')} killed", kill)


def _power_failure(rig, space, databases):
    node = space.node_of(databases[0].pod)
    expect(all(space.node_of(one.pod) == node for one in databases), "both run on one node")
    _during(space, databases, "node lost power", lambda: _lose_power(rig, space, databases, node))
    returns(rig, space, node)


def _lose_power(rig, space, databases, node):
    rig.node(node).cut_power()
    rig.simulator.power(node, "stop")
    cut, waiting = time.monotonic(), list(databases)
    while waiting:
        for one in waiting[:]:
            if space.node_of(one.pod) not in (node, None) and space.ready(one.pod):
                waiting.remove(one)
                seconds = time.monotonic() - cut
                space.step(f"{one.file_system}: ready on the other node {seconds:.1f} s after the cut")
                _note(rig, "failover", "time from a power failure until PostgreSQL is ready on the other "
                      "node", one.file_system, seconds)
        late = ", ".join(one.file_system for one in waiting)
        expect(time.monotonic() - cut < _READY_ELSEWHERE, f"{late} ready within {_READY_ELSEWHERE} s")
        time.sleep(0.1)


def _upgrade(rig, space, databases):
    """Each pod of the driver is replaced, as by an upgrade to another release."""
    new = {"podAnnotations": {"rig.test/database": "1"}}

    def upgrade():
        rig.install(SAFE_DETACH, {"controller": new, "node": new})
        rig.wait_installed(240)
    _during(space, databases, "helm upgrade", upgrade)


def _drain(rig, space, databases):
    node = space.node_of(databases[0].pod)

    def drain():
        rig.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
        for one in databases:
            space.wait_ready(one.pod)
            expect(space.node_of(one.pod) != node, f"{one.pod} left the node")
    _during(space, databases, "node drained", drain)
    rig.kubectl("uncordon", node)
    rig.wait_installed(240)


def _expand(rig, space, databases):
    def expand():
        for one in databases:
            space.resize(one.claim, "3Gi")
            if one.file_system == "ext4":
                _restart(rig, space, one)
            space.wait_capacity(one.claim, "3Gi")
            size = int(space.run(one.pod, "df -k /data | tail -n 1 | awk '{print $2}'"))
            expect(size > 2 * 1024 * 1024, f"{one.pod} sees the new size, not {size} KiB")
    _during(space, databases, "volume expanded", expand)


def _restart(rig, space, one):
    """This machine withholds CAP_SYS_RESOURCE, so that a mounted ext4 cannot grow: the next stage
    grows it."""
    def scale(replicas):
        rig.api.patch("StatefulSet", one.file_system, space.name, {"spec": {"replicas": replicas}})
    scale(0)
    volume = space.get("PersistentVolumeClaim", one.claim)["spec"]["volumeName"]
    rig.api.wait("volume has grown", lambda: rig.api.get("PersistentVolume", volume)["spec"]["capacity"] == {
        "storage": "3Gi"}, 90)
    rig.api.wait("volume detached", lambda: space.attached(one.claim) is None, 90)
    scale(1)
    space.wait_ready(one.pod)


def _modify(rig, space, databases):
    space.api.apply({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
                     "metadata": {"name": "database"}, "driverName": DRIVER,
                     "parameters": {"type": "gp3", "throughput": "200"}})

    def modify():
        for one in databases:
            change = {"spec": {"volumeAttributesClassName": "database"}}
            space.api.patch("PersistentVolumeClaim", one.claim, space.name, change)
        for one in databases:
            space.api.wait("class in force", lambda: _class_in_force(space, one.claim) == "database", 120)
            shape = ec2_volume(rig, space.volume_of(one.claim))["shape"]
            expect(shape["throughput"] == 200, f"the volume has 200 MiB/s: {shape}")
    _during(space, databases, "volume modified", modify)
    space.api.delete("VolumeAttributesClass", "database")


def _class_in_force(space, claim):
    return space.get("PersistentVolumeClaim", claim)["status"].get("currentVolumeAttributesClassName")


def _snapshot(_, space, databases):
    """A snapshot while the database writes opens as after a crash, with all that was acknowledged
    before it was asked for."""
    asked = {}

    def snapshot():
        for one in databases:
            asked[one.pod] = one.client.acknowledged()
            space.snapshot(one.file_system, one.claim)
    _during(space, databases, "snapshot", snapshot)

    def restore():
        for one in databases:
            name = f"restored-{one.file_system}"
            space.claim(name, "4Gi", one.kind, source={
                "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": one.file_system})
            spec = pod_spec(SLEEPER, None, name, False)
            as_postgresql(spec)
            space.start(name, spec)
            space.wait_ready(name)
            found = one.client.expect_all(asked[one.pod], name)
            space.step(f"restored {one.file_system}: {len(asked[one.pod])} acknowledged when the snapshot "
                       f"was asked for, {found} found")
            space.delete_pod(name)
    _during(space, databases, "restore beside it", restore)


def _pgbench(rig, space, node):
    for file_system in _FILE_SYSTEMS:
        for rounds, label, role in zip(compare(space, node, file_system, as_postgresql),
                                       ("volume of the driver", "bare mount"), ("ours", "bound")):
            _note(rig, f"pgbench-{file_system}", f"pgbench, PostgreSQL on {file_system}: transactions per "
                  "second", label, *rounds, unit="1/s", role=role)
            each = ", ".join(f"{one:.0f}" for one in rounds)
            space.step(f"pgbench on {file_system}, {label}: {each} transactions per second")


_STEPS = {"kills": _kills, "power": _power_failure, "upgrade": _upgrade, "drain": _drain,
          "expand": _expand, "modify": _modify, "snapshot": _snapshot}

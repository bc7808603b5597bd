"""The memory of each container of the driver's pods."""

from pathlib import Path

from rig.images import SIDECARS
from rig.state import CGROUP_PREFIX

_PROGRAMS = ("ebs-csi-controller", "ebs-csi-node-lifecycle", "ebs-csi-node-agent",
             "ebs-csi-mount-helper", *SIDECARS)
_MIB = 1 << 20


def memory(rig):
    """Resident memory, as it is now."""
    for program in _PROGRAMS:
        for node in rig.nodes:
            found = node.processes(program)
            if found:
                resident = sum(_resident(pid) for pid in found)
                role = "ours" if program == "ebs-csi-controller" else "part"
                rig.results.add("container-memory", "resident memory of each container", "MiB",
                                program, resident, role=role,
                                note="The sum of a container's processes: shared pages count twice.")


def greatest(rig, key, title):
    """The most memory that each container ever had, page cache included, as its cgroup counts."""
    for program in _PROGRAMS:
        for node in rig.nodes:
            for cgroup in {_cgroup(pid) for pid in node.processes(program)}:
                most = int((cgroup / "memory.max_usage_in_bytes").read_text()) / _MIB
                limit = int((cgroup / "memory.limit_in_bytes").read_text()) // _MIB
                # Without a limit the kernel shows a number beyond all memory.
                bound = f"limit {limit} MiB" if limit < 1 << 20 else "no limit"
                role = "ours" if program == "ebs-csi-controller" else "part"
                rig.results.add(key, title, "MiB", f"{program} ({bound})", most, role=role,
                                note="From each container's cgroup: what it had at most since it "
                                     "started, page cache included. A page of a file counts for the "
                                     "container that read it first.")


def _cgroup(pid):
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            # A container's own group may show the path from the node's.
            found = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
            if CGROUP_PREFIX in path and found.is_dir():
                return found
    raise RuntimeError(f"no memory cgroup of process {pid}")


def _resident(pid):
    for line in open(f"/proc/{pid}/status", encoding="utf-8"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0

"""The whole life of volumes: ext4, XFS and raw block."""

from rig.workload import BLOCK_DEVICE, SLEEPER, Space

from .expect import expect

_COUNTING = "while :; do echo $(($(tail -n 1 /data/log 2>/dev/null || echo 0) + 1)) >>/data/log; sync; sleep .2; done"


def play(rig):
    for file_system in ("ext4", "xfs"):
        _mounted(rig, file_system)
    _raw(rig)


def _mounted(rig, file_system):
    space = Space(rig, f"life-{file_system}")
    kind = f"ebs-{file_system}"
    space.claim("data", kind=kind)
    space.pod("first", "n1", "data", f"echo one >/data/one; sync; {SLEEPER}")
    space.wait_ready("first")
    space.step(f"{file_system}: pod with a new claim ready on n1")
    expect(file_system in space.run("first", "grep ' /data ' /proc/mounts"), "the file system is that of the class")
    space.delete_pod("first")

    space.pod("second", "n2", "data", SLEEPER)
    space.wait_ready("second")
    expect(space.run("second", "cat /data/one") == "one", "the data is on n2")
    space.step(f"{file_system}: pod ready on n2 with the data")

    space.resize("data", "3Gi")
    if file_system == "xfs":
        space.wait_capacity("data", "3Gi")
    else:
        # This machine withholds CAP_SYS_RESOURCE, so a mounted ext4 cannot grow: the next stage
        # does it.
        space.delete_pod("second")
        space.pod("second", "n1", "data", SLEEPER)
        space.wait_ready("second")
        space.wait_capacity("data", "3Gi")
    size = int(space.run("second", "df -k /data | tail -n 1 | awk '{print $2}'"))
    expect(size > 2 * 1024 * 1024, f"the pod sees the new size, not {size} KiB")
    space.step(f"{file_system}: expanded to 3 GiB, {'while mounted' if file_system == 'xfs' else 'by the next stage'}")

    space.run("second", "echo two >/data/two; sync")
    space.snapshot("moment", "data")
    space.step(f"{file_system}: snapshot ready")
    space.claim("restored", "4Gi", kind, source={
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "moment"})
    space.pod("third", "n1", "restored", SLEEPER)
    space.claim("cloned", "4Gi", kind, source={"kind": "PersistentVolumeClaim", "name": "data"})
    space.pod("fourth", "n2", "cloned", SLEEPER)
    for pod, what in (("third", "restored"), ("fourth", "cloned")):
        space.wait_ready(pod)
        expect(space.run(pod, "cat /data/one /data/two").split() == ["one", "two"], f"{what} data")
        size = int(space.run(pod, "df -k /data | tail -n 1 | awk '{print $2}'"))
        expect(size > 3 * 1024 * 1024, f"the {what} volume has its own size, not {size} KiB")
        space.step(f"{file_system}: {what} volume ready")

    space.stateful_set("three", 3, _COUNTING, kind)
    for number in range(3):
        space.wait_ready(f"three-{number}")
    space.step(f"{file_system}: StatefulSet of three ready")
    before = {pod: int(space.run(pod, "tail -n 1 /data/log")) for pod in ("three-0", "three-1", "three-2")}
    for pod in before:
        space.api.delete("Pod", pod, space.name)
    for pod, count in before.items():
        space.api.wait(f"{pod} started anew", lambda: restarted(space, pod, count), 120)
    space.step(f"{file_system}: all three deleted and ready again, each number kept")
    space.remove()


def restarted(space, pod, count):
    """Whether a pod is ready and goes on from a number that it had written."""
    if not space.ready(pod):
        return False
    lines = space.run(pod, "cat /data/log", check=False).split()
    numbers = [int(line) for line in lines]
    expect(numbers == list(range(1, len(numbers) + 1)), f"{pod} counts without a gap")
    return len(numbers) > count


def _raw(rig):
    space = Space(rig, "life-raw")
    space.claim("raw", mode="Block")
    write = f"printf block | dd of={BLOCK_DEVICE} conv=notrunc 2>/dev/null; sync; {SLEEPER}"
    space.pod("first", "n1", "raw", write, block=True)
    space.wait_ready("first")
    space.step("raw: pod with a new claim ready on n1")
    space.resize("raw", "2Gi")
    space.wait_capacity("raw", "2Gi")
    size = int(space.run("first", f"blockdev --getsize64 {BLOCK_DEVICE}"))
    expect(size == 2 << 30, f"the pod sees 2 GiB, not {size} bytes")
    space.step("raw: expanded to 2 GiB while the pod has it")
    space.delete_pod("first")
    space.pod("second", "n2", "raw", SLEEPER, block=True)
    space.wait_ready("second")
    found = space.run("second", f"dd if={BLOCK_DEVICE} bs=5 count=1 2>/dev/null")
    expect(found == "block", f"the data is on n2, not {found!r}")
    space.step("raw: pod ready on n2 with the data")
    space.remove()

"""The least that must work: a claim, a pod, the same data on the other node, and deletion.

The nodes joined with the driver's startup taint, which is gone by now: `Rig.wait_installed`.
"""

from rig.cluster import RELEASE
from rig.workload import Space

from .expect import expect


def play(rig):
    space = Space(rig, "smoke")
    space.claim("data")
    space.pod("first", "n1", "data", "echo written >/data/file; sync; sleep 100000")
    space.wait_ready("first")
    space.step("pod with a new claim ready on n1")
    expect(space.run("first", "cat /data/file") == "written", "the pod reads what it wrote")
    space.delete_pod("first")
    space.pod("second", "n2", "data", "sleep 100000")
    space.wait_ready("second")
    expect(space.run("second", "cat /data/file") == "written", "the data is on n2")
    space.step("pod ready on n2 with the same data")
    rig.run_helm("test", RELEASE)
    space.step("helm test passed")
    space.remove()

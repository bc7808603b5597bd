"""An assertion that no interpreter flag turns off, what several scenarios expect, and the word for
what cannot be played."""

from rig.workload import SLEEPER


def expect(holds, text):
    if not holds:
        raise AssertionError(f"not so: {text}")


class Skipped(Exception):
    """A scenario that this machine cannot play, with the reason."""


def expect_move(space):
    """A pod on n1 writes to a new volume and ends; the pod `second` on n2 reads the same."""
    space.claim("data")
    space.pod("first", "n1", "data", f"echo written >/data/file; sync; {SLEEPER}")
    space.wait_ready("first")
    space.delete_pod("first")
    space.pod("second", "n2", "data", SLEEPER)
    space.wait_ready("second")
    expect(space.run("second", "cat /data/file") == "written", "the data is on n2")

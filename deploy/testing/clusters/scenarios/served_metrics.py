"""Each metric that a process serves is on the page of metrics, with its kind."""

import re
import urllib.request

from rig.cluster import CONTROLLER, NODE
from rig.workload import Space

from .expect import expect

# The heading on the page, the pods, the port.
_PROCESSES = (("controller", CONTROLLER, 3301), ("node-lifecycle", CONTROLLER, 3308),
              ("node-agent", NODE, 9808))


def play(rig):
    space = Space(rig, "metrics")
    space.claim("data")
    space.pod("app", "n1", "data")
    space.wait_ready("app")
    page = (rig.source / "deploy/docs/metrics.md").read_text()
    for name, app, port in _PROCESSES:
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        written = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section, re.MULTILINE))
        served = {}
        for pod in rig.driver_pods(app):
            served.update(_served(pod["status"]["podIP"], port))
        expect(len(served) >= 10, f"{name} serves metrics: {served}")
        for metric, kind in served.items():
            expect(written.get(metric) == kind, f"{metric}, a {kind} of {name}, is on the page")
        space.step(f"{name} serves {len(served)} of the page's {len(written)} metrics, and no other")
    space.remove()


def _served(address, port):
    """The kind of each metric, by name."""
    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=10) as response:
        return dict(re.findall(r"^# TYPE (\w+) (\w+)$", response.read().decode(), re.MULTILINE))

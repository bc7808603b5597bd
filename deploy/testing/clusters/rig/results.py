"""Measurements, printed and kept where `deploy/testing/bench/run report` makes the page of figures from."""

import datetime
import json
import os
import platform
import statistics
import subprocess
import tempfile
from pathlib import Path

# How the note begins that says when and where an earlier run measured a figure.
ORIGIN = "Measured in an earlier run: "


class Results:
    """Samples by figure and row, in the order in which they were first given."""

    def __init__(self):
        self._figures = {}
        # Before the run adds to the machine's load.
        self._host = _host()

    def add(self, key, title, unit, label, *samples, role="part", note=None):
        figure = self._figures.setdefault(
            key, {"key": key, "title": title, "unit": unit, "rows": {}, "notes": [], "targets": []})
        figure["rows"].setdefault(label, (role, []))[1].extend(samples)
        if note and note not in figure["notes"]:
            figure["notes"].append(note)

    def show(self):
        for figure in self._figures.values():
            print(f"\n  {figure['title']}, {figure['unit']}")
            for label, (_, samples) in figure["rows"].items():
                of = f"  (median of {len(samples)})" if len(samples) > 1 else ""
                print(f"    {label:<40} {statistics.median(samples):8.3f}{of}")

    def keep(self, path, command):
        """Writes the figures in the form of deploy/testing/bench/src/report/results.rs, and keeps those of
        an earlier run that this run did not measure."""
        figures = [{**figure, "command": command,
                    "rows": [{"label": label, "role": role, "summary": _summary(samples)}
                             for label, (role, samples) in figure["rows"].items()]}
                   for figure in self._figures.values()]
        today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        document = {"part": "kubernetes", "command": command, "date": today, "host": self._host,
                    "figures": figures}
        if Path(path).exists():
            _keep_from(document, json.loads(Path(path).read_text()))
        Path(path).write_text(json.dumps(document, indent=2) + "\n")


def _keep_from(document, earlier):
    """Does as `keep_from` in deploy/testing/bench/src/report/results.rs."""
    differs = (document["date"] != earlier["date"]
               or document["host"]["processor"] != earlier["host"]["processor"])
    measured = {figure["key"] for figure in document["figures"]}
    for figure in earlier["figures"]:
        if figure["key"] in measured:
            continue
        if differs and not any(note.startswith(ORIGIN) for note in figure["notes"]):
            figure["notes"].append(
                f"{ORIGIN}{earlier['date']} on {earlier['host']['processor']}.")
        document["figures"].append(figure)


def _summary(samples):
    ordered = sorted(samples)

    def at(part):
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    return {"count": len(ordered), "least": ordered[0], "lower": at(0.25),
            "median": statistics.median(ordered), "upper": at(0.75), "p99": at(0.99),
            "greatest": ordered[-1]}


def _host():
    model = next((line.split(":", 1)[1].strip()
                  for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    memory = int(Path("/proc/meminfo").read_text().split()[1])
    load = Path("/proc/loadavg").read_text().split()[0]
    files = subprocess.run(["stat", "-f", "-c", "%T", tempfile.gettempdir()], capture_output=True,
                           text=True, check=True).stdout.strip()
    return {"processor": model, "processors": os.cpu_count(), "memory_gib": round(memory / 2**20),
            "kernel": platform.release(), "file_system": files, "load_before": load}

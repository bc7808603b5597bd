"""The commands of each README in deploy/install/examples, as they stand there.

The rig changes the image, and gives the volumes that two examples ask for.
"""

import re
import shlex
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

from rig.network import CONTROL
from rig.simulator import EC2_PORT, ZONE
from rig.workload import BUSYBOX, Space, left_over

from .expect import expect

_IMAGE = "public.ecr.aws/docker/library/busybox:1.37"
_VOLUME = "vol-0123456789abcdef0"
_DEVICE = "/dev/xvdbz"


def play(rig):
    folders = sorted(path.parent for path in (rig.source / "deploy/install/examples").glob("*/README.md"))
    expect(len(folders) >= 14, f"{len(folders)} examples")
    for folder in folders:
        prepare = {"static-volume": _static, "node-local-volume": _node_local,
                   "group-snapshot": _groups}.get(folder.name, _nothing)
        _play(rig, folder, prepare)


def commands(text):
    """The kubectl commands of a README, each with what it prints or None."""
    found = []
    for line in text.splitlines():
        if line.startswith("    kubectl "):
            command, _, printed = line.strip().partition("  # ")
            found.append((command, printed or None))
    return found


def _play(rig, folder, prepare):
    space = Space(rig, f"example-{folder.name}")
    replace, clean_up = prepare(rig)
    tree = rig.state.directory / f"example-{folder.name}"
    copy = tree / "deploy/install/examples" / folder.name
    shutil.copytree(folder, copy)
    for manifest in copy.iterdir():
        text = manifest.read_text().replace(_IMAGE, BUSYBOX)
        for old, new in replace.items():
            text = text.replace(old, new)
        manifest.write_text(text)
    for command, printed in commands((folder / "README.md").read_text()):
        output = _run(rig, space, tree, command)
        expect(printed is None or printed in output, f"{command}: {printed!r} in {output!r}")
    rig.api.wait("volumes detached", lambda: not rig.api.list("VolumeAttachment"), 120)
    clean_up()
    rig.api.wait("nothing left", lambda: not left_over(rig), 180)
    space.step(f"{folder.name}: as its README says")


def _run(rig, space, tree, command):
    """The output of a command, or of one that reads what another prints, in the scenario's namespace."""
    output = ""
    for part in command.split(" | "):
        _, *arguments = shlex.split(part)
        done = subprocess.run(
            [rig.programs / "kubectl", f"--kubeconfig={rig.certificates.path('admin.kubeconfig')}",
             f"--namespace={space.name}", *arguments],
            capture_output=True, text=True, input=output, cwd=tree)
        if done.returncode != 0:
            names = [one["metadata"]["name"] for one in rig.api.list("Pod", space.name)]
            why = "\n".join(filter(None, map(space.why, names)))
            raise RuntimeError(f"{part}: {done.stderr.strip()}\n{why}")
        output = done.stdout
    return output


def _nothing(_rig):
    return {}, lambda: None


def _groups(rig):
    return {}, _with(rig, {"groupSnapshots": {"enabled": True}})


def _with(rig, values):
    """Installs the driver with these values, and returns what installs it as usual again."""
    rig.install(values)
    rig.wait_installed()
    return lambda: (rig.install(), rig.wait_installed())


def _static(rig):
    volume = _create_volume()
    return {_VOLUME: volume, "us-east-1a": ZONE}, lambda: _ec2("DeleteVolume", VolumeId=volume)


def _node_local(rig):
    """A formatted volume at each node, as a launch template and its user data make it."""
    restore = _with(rig, {"controller": {"enableNodeLocalVolumes": True}})
    volumes = {}
    for node in rig.nodes:
        volume = volumes[node.name] = _create_volume()
        _ec2("AttachVolume", VolumeId=volume, InstanceId=node.instance, Device=_DEVICE)
        disk = rig.simulator.device_directory(node.name) / Path(_DEVICE).name
        rig.api.wait(f"disk of {volume}", disk.exists, 30)
        subprocess.run(["mkfs.ext4", "-q", disk.resolve()], check=True)

    def clean_up():
        for name, volume in volumes.items():
            expect("<status>in-use</status>" in _ask("DescribeVolumes", **{"VolumeId.1": volume}),
                   f"the volume of {name} outlives its pod attached")
            found = subprocess.run(
                ["debugfs", "-R", "cat /node", rig.simulator.image(volume)],
                check=True, capture_output=True, text=True).stdout.strip()
            expect(found == name, f"the volume of {name} has what its own pod wrote, not {found!r}")
            _ec2("DetachVolume", VolumeId=volume)
            _wait_available(volume)
            _ec2("DeleteVolume", VolumeId=volume)
        restore()

    return {}, clean_up


def _create_volume():
    volume = _ec2("CreateVolume", Size=1, VolumeType="gp3", AvailabilityZone=ZONE)
    _wait_available(volume)
    return volume


def _wait_available(volume):
    deadline = time.monotonic() + 60
    while "<status>available</status>" not in _ask("DescribeVolumes", **{"VolumeId.1": volume}):
        expect(time.monotonic() < deadline, f"{volume} is available within a minute")
        time.sleep(0.2)


def _ec2(action, **parameters):
    """The volume id in the answer, if it has one."""
    found = re.search(r"<volumeId>(.*?)</volumeId>", _ask(action, **parameters))
    return found.group(1) if found else None


def _ask(action, **parameters):
    """Calls EC2 as an administrator would. Of a signature the simulator looks only at Region and time."""
    now = time.gmtime()
    scope = f"{time.strftime('%Y%m%d', now)}/{ZONE[:-1]}/ec2/aws4_request"
    body = urllib.parse.urlencode({"Action": action, "Version": "2016-11-15", **parameters}).encode()
    request = urllib.request.Request(f"http://{CONTROL}:{EC2_PORT}/", body, {
        "Authorization": f"AWS4-HMAC-SHA256 Credential=AKIASANDBOX/{scope}, "
                         f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}",
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Amz-Date": time.strftime("%Y%m%dT%H%M%SZ", now),
    })
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode()

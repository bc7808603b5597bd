"""The upstream External.Storage suite of Kubernetes against this driver.

The counts are pinned: a test that is skipped is not a passed one.
"""

import re
import subprocess


from .expect import expect

# Tests that ran, by part. A failure that is not the driver's has a reason here.
_EXPECTED = {"fast": 59, "slow": 45, "xfs": 63, "limits": 2}
_KNOWN = {}
_SKIP_ALWAYS = r"\[Disruptive\]|\[Serial\]"


def fast(rig):
    _run(rig, "fast", r"External.Storage", rf"\[Slow\]|{_SKIP_ALWAYS}", "ext4")


def slow(rig):
    _run(rig, "slow", r"External.Storage.*\[Slow\]", _SKIP_ALWAYS, "ext4")


def xfs(rig):
    _run(rig, "xfs", r"External.Storage", rf"\[Slow\]|{_SKIP_ALWAYS}", "xfs")


def limits(rig):
    _run(rig, "limits", r"External.Storage.*volumeLimits", r"\[Disruptive\]", "ext4")


def _run(rig, name, focus, skip, file_system):
    directory = rig.state.directory / f"suite-{name}"
    directory.mkdir()
    driver = _driver_file(rig, directory, file_system)
    log = rig.state.log / f"suite-{name}.log"
    with open(log, "wb") as output:
        done = subprocess.run([
            rig.programs / "ginkgo", "-procs=4", "--no-color", "--timeout=60m",
            f"--focus={focus}", f"--skip={skip}", rig.programs / "e2e.test", "--",
            f"-kubeconfig={rig.certificates.path('admin.kubeconfig')}", "-provider=skeleton",
            f"-storage.testdriver={driver}", f"-report-dir={directory}", "-disable-log-dump",
            "-allowed-not-ready-nodes=10", "-delete-namespace-on-failure=true",
        ], stdout=output, stderr=subprocess.STDOUT, cwd=directory)
    text = log.read_text(errors="replace")
    ran = re.search(r"(\d+) Passed.*?(\d+) Failed", text)
    expect(ran, f"the suite ran to its end (status {done.returncode}), see {log}")
    passed, failed = map(int, ran.groups())
    failures = sorted(set(re.findall(r"\[FAIL\] (.*)$", text, re.MULTILINE)))
    print(f"  External.Storage, {name}: {passed} passed, {failed} failed")
    for failure in failures:
        print(f"    {failure}: {_KNOWN.get(failure, 'NO REASON KNOWN')}")
    expect(all(failure in _KNOWN for failure in failures), "each failure has a reason")
    expect(passed + failed == _EXPECTED[name], f"{_EXPECTED[name]} tests ran, not {passed + failed}")


def _driver_file(rig, directory, file_system):
    """The suite's description of the driver."""
    parameters = ["  type: gp3"]
    if file_system == "xfs":
        parameters.append("  csi.storage.k8s.io/fstype: xfs")
    (directory / "class.yaml").write_text("\n".join([
        "apiVersion: storage.k8s.io/v1",
        "kind: StorageClass",
        "metadata: {name: ebs-e2e}",
        "provisioner: ebs.csi.aws.com",
        "volumeBindingMode: WaitForFirstConsumer",
        "allowVolumeExpansion: true",
        "parameters:",
        *parameters,
        "",
    ]))
    (directory / "attributes.yaml").write_text("\n".join([
        "apiVersion: storage.k8s.io/v1",
        "kind: VolumeAttributesClass",
        "metadata: {name: ebs-e2e}",
        "driverName: ebs.csi.aws.com",
        'parameters: {throughput: "200"}',
        "",
    ]))
    # This machine withholds CAP_SYS_RESOURCE: a mounted ext4 does not grow.
    online = "true" if file_system == "xfs" else "false"
    kinds = '"": {}, ext4: {}, xfs: {}' if file_system == "ext4" else '"": {}, xfs: {}'
    path = directory / "driver.yaml"
    path.write_text(f"""ShortName: ebs
StorageClass: {{FromFile: {directory}/class.yaml}}
SnapshotClass: {{FromName: true}}
VolumeAttributesClass: {{FromFile: {directory}/attributes.yaml}}
DriverInfo:
  Name: ebs.csi.aws.com
  SupportedSizeRange: {{Min: 1Gi, Max: 16Ti}}
  SupportedFsType: {{{kinds}}}
  SupportedMountOption: {{dirsync: {{}}}}
  TopologyKeys: [topology.kubernetes.io/zone]
  RequiredAccessModes: [ReadWriteOnce]
  Capabilities:
    persistence: true
    block: true
    fsGroup: true
    exec: true
    snapshotDataSource: true
    pvcDataSource: true
    topology: true
    multipods: true
    controllerExpansion: true
    nodeExpansion: true
    onlineExpansion: {online}
    offlineExpansion: true
    readWriteOncePod: true
    volumeLimits: true
""")
    return path

"""Container images: the driver's from `deploy/install/images/build`, and what pods of the rig run."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

DRIVER, TAG = "rig.test/ebs-csi", "rig"
_GO_DRIVER_RUNS = ("mkfs.ext4", "mkfs.xfs", "fsck", "fsck.ext4", "fsck.xfs", "blkid", "blockdev",
                   "lsblk", "mount", "umount", "resize2fs", "xfs_growfs", "strace")
NETWORK_POLICIES = "rig.test/kube-network-policies:rig"
POSTGRESQL = "rig.test/postgresql:1"
POSTGRESQL_PROGRAMS = "/usr/lib/postgresql/15/bin"
SIDECARS = ("csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter")


class Images:
    """Archives in one directory, which each node imports when it starts."""

    def __init__(self, rig):
        self._rig = rig
        self.directory = rig.images
        self.directory.mkdir(parents=True, exist_ok=True)

    def build(self, driver_images=None):
        """Makes every archive; those of the driver are taken from this directory where it is given."""
        rig = self._rig
        if driver_images:
            for archive in Path(driver_images).glob("*.tar"):
                shutil.copy(archive, self.directory)
        else:
            subprocess.run([
                rig.source / "deploy/install/images/build", "--profile", rig.profile,
                "--output", self.directory, "--repository", DRIVER, "--tag", TAG,
            ], check=True)
        for sidecar in SIDECARS:
            program, archive = rig.programs / sidecar, self.directory / f"{sidecar}.tar"
            if archive.exists() and archive.stat().st_mtime > program.stat().st_mtime:
                continue
            self._pack(sidecar, f"rig.test/{sidecar}:rig", f"/{sidecar}",
                       files=[(rig.programs / sidecar, f"/{sidecar}")])
        self._pack("volume-modifier", "rig.test/volume-modifier:rig", "/volume-modifier",
                   files=[(rig.here / "images/volume-modifier", "/volume-modifier")],
                   trees=[(self._busybox(), "/")])
        self._pause()
        self._pack("busybox", "rig.test/busybox:1", None, trees=[(self._busybox(), "/")])
        self._write_digests()

    def _write_digests(self):
        for archive in self.directory.glob("*.tar"):
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            Path(f"{archive}.digest").write_text(digest)

    def _pause(self):
        program = self.directory / "pause"
        source = self._rig.here / "images/pause.c"
        subprocess.run(["cc", "-Os", "-static", "-s", "-o", program, source], check=True)
        self._pack("pause", "rig.test/pause:1", "/pause", files=[(program, "/pause")])

    def _busybox(self, without=()):
        """A directory tree with busybox's programs but these."""
        tree = self.directory / "busybox"
        shutil.rmtree(tree, ignore_errors=True)
        programs = tree / "bin"
        programs.mkdir(parents=True)
        shutil.copy("/bin/busybox", programs / "busybox")
        names = subprocess.run(["/bin/busybox", "--list"], check=True, capture_output=True, text=True)
        for name in names.stdout.split():
            if name != "busybox" and name not in without:
                (programs / name).symlink_to("busybox")
        for directory in ("etc", "root", "mnt", "var/log", "usr"):
            (tree / directory).mkdir(parents=True)
        (tree / "usr/bin").symlink_to("../bin")
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (tree / "etc/group").write_text("root:x:0:\n")
        return tree

    def _pack(self, name, reference, entrypoint, files=(), trees=(), command=()):
        options = ["--env", "PATH=/bin:/usr/bin:/sbin:/usr/sbin"]
        if entrypoint:
            options += ["--config-entrypoint", json.dumps([entrypoint])]
        if command:
            options += ["--config-cmd", json.dumps(command)]
        platform = "linux/arm64" if os.uname().machine == "aarch64" else "linux/amd64"
        with tempfile.TemporaryDirectory(prefix="ebs-csi-image.") as scratch:
            root, layout = Path(scratch, "root"), f"{scratch}/layout:{name}"
            (root / "tmp").mkdir(parents=True)
            (root / "tmp").chmod(0o1777)
            for source, path in trees:
                shutil.copytree(source, f"{root}{path}", symlinks=True, dirs_exist_ok=True)
            for source, path in files:
                target = Path(f"{root}{path}")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
            subprocess.run([self._rig.source / "deploy/install/images/image", root, layout, platform,
                            "1970-01-01T00:00:00Z", "none", *options], check=True)
            cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            subprocess.run([f"{cache}/ebs-csi/bin/regctl", "image", "export", f"ocidir://{layout}",
                            self.directory / f"{name}.tar", "--name", reference], check=True)

    def build_for_suite(self):
        """The images of the upstream suite: its own agnhost, and busybox under the other names."""
        listed = subprocess.run([self._rig.programs / "e2e.test", "--list-images"], check=True,
                                capture_output=True, text=True).stdout.split()
        # busybox's dd does not know oflag=nocache, which one test of the suite uses, and its shell
        # prefers its own dd to the one in the path. Another test uses `let`, which dash lacks.
        tree = self._busybox(without=("dd", "sh"))
        dd = [(shutil.which("dd"), "/bin/dd"), *libraries(shutil.which("dd")),
              ("/bin/bash", "/bin/sh"), *libraries("/bin/bash")]
        for reference in listed:
            name = reference.rpartition("/")[2].partition(":")[0]
            file = "suite-" + reference.rpartition("/")[2].replace(":", "-")
            if name == "agnhost":
                files = [(self._rig.programs / "agnhost", "/agnhost"), *dd]
                self._pack(file, reference, "/agnhost", files, [(tree, "/")], ["pause"])
            elif name in ("busybox", "glibc-dns-testing"):
                self._pack(file, reference, None, dd, [(tree, "/")], ["sh"])
            elif name == "nginx":
                self._pack(file, reference, "/bin/sleep", dd, [(tree, "/")], ["100000"])
        self._write_digests()

    def build_network_policies(self):
        """The image of kube-network-policies, with its program where its manifest has it."""
        program = self._rig.programs / "kube-network-policies"
        self._pack("kube-network-policies", NETWORK_POLICIES, None, files=[(program, "/bin/netpol")])
        self._write_digests()

    def build_postgresql(self):
        """The image of Debian's PostgreSQL, where `programs/prepare` has its packages."""
        debian = self._rig.programs / "postgresql"
        if not debian.is_dir():
            (self.directory / "postgresql.tar").unlink(missing_ok=True)
            return
        tree, libraries_of_server = self._busybox(), "/usr/lib/postgresql/15/lib"
        with open(tree / "etc/passwd", "a", encoding="utf-8") as users:
            users.write("postgres:x:999:999::/data:/bin/sh\n")
        files = {f"{libraries_of_server}/{name}.so": f"{debian}{libraries_of_server}/{name}.so"
                 for name in ("plpgsql", "dict_snowball")}
        for name in ("postgres", "initdb", "pg_ctl", "pg_isready", "pgbench"):
            program = f"{debian}{POSTGRESQL_PROGRAMS}/{name}"
            files[f"{POSTGRESQL_PROGRAMS}/{name}"] = program
            files.update({path: source for source, path in libraries(program, debian)})
        share = "/usr/share/postgresql/15"
        self._pack("postgresql", POSTGRESQL, None, [(source, path) for path, source in files.items()],
                   [(tree, "/"), (f"{debian}{share}", share)])
        self._write_digests()

    def build_go_driver(self):
        """The image of the Go driver's stand-in, or of the Go driver itself where its program was
        given, with the distribution's programs that the Go driver runs, and strace, which ends a
        format early."""
        rig, program = self._rig, self.directory / "go-driver"
        sources = sorted((rig.here / "go-driver").glob("*.go"))
        subprocess.run(
            ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, *sources],
            cwd=rig.modules, check=True,
            env=dict(os.environ, CGO_ENABLED="0", GOTOOLCHAIN="local", GOFLAGS="-buildvcs=false"))
        script = rig.here / "go-driver/mkfs"
        files = {"/bin/aws-ebs-csi-driver": rig.go_driver or program, "/bin/stand-in": program,
                 "/bin/mkfs.ext4": script, "/bin/mkfs.xfs": script, "/bin/sh": "/bin/busybox",
                 "/etc/mke2fs.conf": "/etc/mke2fs.conf"}
        for name in _GO_DRIVER_RUNS:
            found = shutil.which(name)
            files[f"/usr/sbin/{name}"] = found
            # fsck.xfs is a shell script.
            with open(found, "rb") as start:
                if start.read(4) == b"\x7fELF":
                    files.update({path: source for source, path in libraries(found)})
        self._pack("go-driver", "rig.test/go-driver:rig", "/bin/aws-ebs-csi-driver",
                   files=[(source, path) for path, source in files.items()])
        self._write_digests()


def libraries(program, tree=""):
    """The libraries that a program links, each as its file and its path. Those of a tree of unpacked
    packages come before the machine's."""
    beside = ":".join(map(str, Path(tree or "/nowhere").glob("usr/lib/*-linux-gnu")))
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True,
                            env=dict(os.environ, LD_LIBRARY_PATH=beside)).stdout
    return [(word, word.removeprefix(str(tree))) for word in listed.split() if word.startswith("/")]

"""The files of a Debian system of one architecture, and the packages that they belong to.

A system is this machine, or a directory that `unpack-packages` wrote: nothing of it is run."""

import re
from pathlib import Path

from parts import Failure, Part, output, read

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_READELF = {"Advanced Micro Devices X86-64": "amd64", "AArch64": "arm64"}
_COMMON = "/usr/share/common-licenses/"


class System:
    def __init__(self, root, architecture):
        self.root, self.architecture = Path(root).resolve(), architecture

    def file(self, path):
        return Path(f"{self.root}/{path}")

    def libraries(self, programs):
        """The loader and the libraries of programs and of the libraries themselves.

        >>> System("/", "amd64").libraries(["/etc/passwd"])
        Traceback (most recent call last):
        parts.Failure: /etc/passwd is no ELF program of a known architecture
        """
        found, unread = set(), list(programs)
        while unread:
            for library in self._needed(unread.pop()) - found:
                found.add(library)
                unread.append(self.file(library))
        return found

    def _needed(self, program):
        architecture, loader, libraries = _read_elf(program)
        if architecture != self.architecture:
            raise Failure(f"{program} is a program for {architecture}, not {self.architecture}")
        directories = f"/usr/lib/{MACHINES[architecture]}-linux-gnu", "/usr/lib64", "/usr/lib"
        needed = {name: [f"{directory}/{name}" for directory in directories] for name in libraries}
        if loader:
            needed[loader] = [loader]
        found = set()
        for name, candidates in needed.items():
            real = next(filter(None, map(self._real, candidates)), None)
            if not real:
                raise Failure(f"{program} needs {name}, in none of the loader's directories")
            found.add(real)
        return found

    def _real(self, path):
        """The path with its directory resolved and its name kept, if the system has the file: /lib
        is a link to /usr/lib, and an image gets the same link."""
        path = self.file(path)
        directory = path.parent.resolve()
        if path.exists() and directory.is_relative_to(self.root):
            return "/" + str((directory / path.name).relative_to(self.root))
        return None

    def packages(self, files, texts):
        """The part of each file, which has to be as its package has it."""
        if not files:
            return {}
        admin = f"--admindir={self.file('/var/lib/dpkg')}"
        # The status says that some path was not found, and of two names one always is not.
        names = [name for file in files for name in _names(file)]
        listed = output("dpkg-query", admin, "--search", *names, may_fail=True)
        owners = dict(reversed(line.split(": ", 1)) for line in listed.splitlines()
                      if ": " in line and not line.startswith("diversion by "))
        owner = {}
        for file in sorted(files):
            of_names = [owners[name] for name in _names(file) if name in owners]
            if not of_names:
                raise Failure(f"{file} belongs to no Debian package")
            owner[file] = of_names[0]
        packages = sorted(set(owner.values()))
        changed = output("dpkg", admin, f"--instdir={self.root}", "--verify", *packages,
                         may_fail=True)
        changed = {"/" + line.split("/", 1)[1] for line in changed.splitlines() if "/" in line}
        for file in sorted(files):
            if changed.intersection(_names(file)):
                raise Failure(f"{file} is not as its package has it")
        fields = "${Package} ${Version} ${Architecture} ${source:Package}\n"
        parts = {package: self._part(texts, *output(
            "dpkg-query", admin, "--show", f"--showformat={fields}", package).split())
            for package in packages}
        for file, package in owner.items():
            parts[package].files.add(file)
        return {file: parts[package] for file, package in owner.items()}

    def _part(self, texts, name, version, architecture, source):
        copyright = read(self.file(f"/usr/share/doc/{name}/copyright"))
        title = f"{name} {version} (Debian source {source})"
        for text in copyright, *(read(_COMMON + common) for common in common_licences(copyright)):
            texts.add(title, text)
        return Part(name, version, licences(source, copyright),
                    ("deb", "debian", {"arch": architecture}))


def is_static(program):
    """Whether the kernel starts the program without a loader."""
    _, loader, libraries = _read_elf(program)
    return not loader and not libraries


def _read_elf(program):
    """Architecture, loader and libraries of a program."""
    shown = output("readelf", "--wide", "--file-header", "--program-headers", "--dynamic", program,
                   may_fail=True)
    machine = re.search(r"^  Machine: +(.*)$", shown, re.MULTILINE)
    if not machine or machine[1] not in _READELF:
        raise Failure(f"{program} is no ELF program of a known architecture")
    loader = re.search(r"\[Requesting program interpreter: (.*)\]", shown)
    return _READELF[machine[1]], loader and loader[1], re.findall(r"\(NEEDED\).*\[(.*)\]", shown)


def _names(file):
    """The names that a package may have for a file: Debian moved directories below /usr."""
    return [file, file.removeprefix("/usr")] if file.startswith("/usr/") else [file]


def common_licences(copyright):
    """The common licences that a copyright file refers to.

    >>> sorted(common_licences("See `/usr/share/common-licenses/LGPL-2.1'. And\\n"
    ...                        "/usr/share/common-licenses/GPL-2.\\n"))
    ['GPL-2', 'LGPL-2.1']
    """
    found = re.findall(re.escape(_COMMON) + r"([A-Za-z0-9.-]*)", copyright)
    return {name.rstrip(".") for name in found} - {""}


def licences(source, copyright):
    """The licences of a source package.

    A file that is not of the machine-readable format is searched for references to common licences;
    in which versions and with which exceptions they apply, only a reader can tell. For the two such
    packages that programs link, a reader has.

    >>> sorted(licences("e2fsprogs", "Format: x\\n\\nFiles: *\\nLicense: GPL-2 and LGPL-2, own\\n"
    ...                              "\\nFiles: a\\nLicense: BSD-3-clause\\n text\\n"))
    ['BSD-3-Clause', 'GPL-2.0-only', 'LGPL-2.0-only', 'own']
    >>> licences("gcc-12", "See /usr/share/common-licenses/GPL-3")
    {'GPL-3.0-or-later WITH GCC-exception-3.1'}
    >>> licences("other", "See /usr/share/common-licenses/GPL-3")
    {'GPL-3'}
    """
    if copyright.startswith("Format:"):
        stated = re.findall(r"^License:(.*)$", copyright, re.MULTILINE)
        names = (re.split(r" and/or | and | or |,", line) for line in stated)
        return {spdx(name.strip()) for line in names for name in line} - {""}
    # The latter has the C library for other architectures.
    if source in ("glibc", "cross-toolchain-base"):
        return {"LGPL-2.1-or-later"}
    if source.startswith("gcc-"):
        return {"GPL-3.0-or-later WITH GCC-exception-3.1"}
    return common_licences(copyright)


def spdx(name):
    """The SPDX identifier of a short name of a copyright file, where SPDX has the licence.

    >>> [spdx(name) for name in ("GPL-2", "LGPL-2.1+", "BSD-3-clause", "Expat", "MIT-US-export")]
    ['GPL-2.0-only', 'LGPL-2.1-or-later', 'BSD-3-Clause', 'MIT', 'MIT-US-export']
    """
    gnu = re.fullmatch(r"(L?GPL-[123]|GFDL-1\.[23]|LGPL-2\.1)(\.0)?(\+?)", name)
    if gnu:
        version = gnu[1] if "." in gnu[1] else f"{gnu[1]}.0"
        return version + ("-or-later" if gnu[3] else "-only")
    return {"Apache-2": "Apache-2.0", "Expat": "MIT"}.get(name, re.sub(
        r"^(BSD-[234])-clause$", r"\1-Clause", name))

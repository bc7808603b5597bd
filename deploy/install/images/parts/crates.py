"""The crates that a program links, as cargo resolves them, and Rust's library."""

import functools
import json
import os
import re
import tomllib
from pathlib import Path

from parts import Failure, Part, output, read, standard_texts

_LICENCE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE|LEGAL)", re.IGNORECASE)
_SOURCES = {".rs", ".c", ".h", ".cc", ".go", ".py", ".pl", ".toml", ".json", ".html"}


def linked(manifest, program, target, path, texts):
    """The parts of a program at this path of the image; the first is the program itself.

    Procedural macros and build scripts run in the build only and are left out.
    """
    tree = output("cargo", "tree", "--locked", "--offline", "--target", target,
                  "-e", "normal,no-proc-macro", "--prefix", "depth", "--format", " {p}",
                  "-p", program, "--manifest-path", manifest)
    needs = _needs(tree)
    known, checksums = _packages(manifest, target)
    parts = []
    for crate, needed in needs.items():
        if crate not in known:
            raise Failure(f"cargo metadata does not know {' '.join(crate)}")
        licence, directory = known[crate]
        _add_texts(" ".join(crate), licence, directory, texts)
        part = _part(*crate, licence, checksums.get(crate, ""))
        part.needs = {_part(*one, "", checksums.get(one, "")).key for one in needed}
        parts.append(part)
    library = _standard_library(texts)
    parts[0].is_program, parts[0].files = True, {path}
    parts[0].needs.add(library.key)
    return [*parts, library]


def _part(name, version, licence, checksum):
    # Only what a registry has is found by its package URL.
    return Part(name, version, {licence} - {""}, ("cargo", None, None) if checksum else (), checksum)


def _needs(tree):
    """The crates of `cargo tree --prefix depth`, each with those that it links itself.

    >>> a, b, c, d = ((name, "1.0.0") for name in "abcd")
    >>> needs = _needs("0 a v1.0.0 (/x)\\n1 b v1.0.0\\n2 c v1.0.0\\n"
    ...                "1 d v1.0.0\\n2 b v1.0.0 (*)\\n")
    >>> needs == {a: {b, d}, b: {c}, c: set(), d: {b}}
    True
    """
    needs, ancestors = {}, []
    for line in tree.splitlines():
        depth, name, version = line.split()[:3]
        crate = name, version.removeprefix("v")
        del ancestors[int(depth):]
        needs.setdefault(crate, set())
        if ancestors:
            needs[ancestors[-1]].add(crate)
        ancestors.append(crate)
    return needs


@functools.cache
def _packages(manifest, target):
    """Licence and directory of each crate of a workspace, and the checksums of its lock file."""
    metadata = json.loads(output(
        "cargo", "metadata", "--format-version", "1", "--locked", "--offline",
        "--filter-platform", target, "--manifest-path", manifest))
    lock = tomllib.loads(read(Path(manifest).with_name("Cargo.lock")))
    checksums = {(one["name"], one["version"]): one.get("checksum", "") for one in lock["package"]}
    known = {}
    for one in metadata["packages"]:
        directory = Path(one["manifest_path"]).parent
        known[one["name"], one["version"]] = spdx(one["license"]), directory
    return known, checksums


def spdx(licence):
    """What a manifest says, which may be of the older form.

    >>> spdx("MIT/Apache-2.0"), spdx("Apache-2.0 / MIT"), spdx("(Apache-2.0 OR MIT) AND ISC")
    ('MIT OR Apache-2.0', 'Apache-2.0 OR MIT', '(Apache-2.0 OR MIT) AND ISC')
    """
    return re.sub(r"\s*/\s*", " OR ", licence or "")


def _add_texts(crate, licence, directory, texts):
    """Adds the texts among a crate's sources, also those of C sources that it brings along, or the
    standard texts of the licence that its manifest names.

    >>> import tempfile
    >>> from parts import Texts
    >>> sources, texts = tempfile.TemporaryDirectory(), Texts()
    >>> _add_texts("a 1", "MIT OR Apache-2.0", sources.name, texts)
    >>> "Permission is hereby granted" in texts.document("x")
    True
    >>> _add_texts("a 1", "", sources.name, texts)
    Traceback (most recent call last):
    parts.Failure: a 1 has neither a known licence nor a text of one
    >>> bundled = Path(sources.name, "c_src/lib")
    >>> bundled.mkdir(parents=True)
    >>> for path in bundled / "LICENSE", bundled / "license.rs":
    ...     _ = path.write_text(f"text of {path.name}")
    >>> _add_texts("a 1", "", sources.name, texts)
    >>> "text of LICENSE" in texts.document("x"), "text of license.rs" in texts.document("x")
    (True, False)
    """
    found = False
    for folder, folders, files in os.walk(directory):
        folders[:] = set(folders) - {"tests", "benches", "examples", "target"}
        for path in (Path(folder, name) for name in files if _LICENCE.match(name)):
            if path.suffix.lower() not in _SOURCES and not path.is_symlink():
                texts.add(crate, read(path))
                found = True
    if not found:
        names = set(re.findall(r"[^\s()]+", licence)) - {"AND", "OR"}
        standard = [Path(standard_texts(), f"{name}.txt") for name in names]
        if not standard or not all(path.exists() for path in standard):
            raise Failure(f"{crate} has neither a known licence nor a text of one")
        for path in standard:
            texts.add(crate, read(path))


def _standard_library(texts):
    """Rust's standard library, which is no crate to cargo."""
    version = output("rustc", "-V").split()[1]
    part = Part("rust-std", version, {"MIT OR Apache-2.0"})
    for name in "../COPYRIGHT-library.html", "MIT.txt", "Apache-2.0.txt":
        texts.add(f"{part.name} {version}", read(Path(standard_texts(), name)))
    return part

"""The parts of an image with their licences."""

import functools
import re
import subprocess
from dataclasses import dataclass, field


class Failure(Exception):
    """What is missing on this machine, or not as it has to be."""


@dataclass
class Part:
    """A crate, a Debian package or Rust's library."""

    name: str
    version: str
    # SPDX expressions, and names that SPDX does not have; all of them apply.
    licences: set = field(default_factory=set)
    # Type, namespace and qualifiers of the package URL, if the part is published.
    published: tuple = ()
    # Of the published archive.
    sha256: str = ""
    # What the image's program is, not a library of it.
    is_program: bool = False
    # The paths in the image that hold it.
    files: set = field(default_factory=set)
    # Keys of the parts that it links.
    needs: set = field(default_factory=set)

    @property
    def key(self):
        return self.published[:1], self.name, self.version


class Texts:
    """Licence texts, each once, with the parts that it belongs to.

    >>> texts = Texts()
    >>> texts.add("a 1", "Permission\\r\\nis granted\\n\\n")
    >>> texts.add("b 2", "Permission \\nis granted")
    >>> print(texts.document("x").replace("=" * 80, "=="))
    Licences of x
    <BLANKLINE>
    ==
    a 1
    b 2
    ==
    <BLANKLINE>
    Permission
    is granted
    <BLANKLINE>
    """

    def __init__(self):
        self._parts = {}

    def add(self, part, text):
        lines = (line.rstrip() for line in text.split("\n"))
        self._parts.setdefault("\n".join(lines).strip("\n"), set()).add(part)

    def document(self, title):
        rule = "=" * 80
        document = f"Licences of {title}\n"
        for parts, text in sorted((sorted(parts), text) for text, parts in self._parts.items()):
            names = "\n".join(parts)
            document += f"\n{rule}\n{names}\n{rule}\n\n{text}\n"
        return document


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


def output(*command, may_fail=False):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace")
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}") from None
    if done.returncode and not may_fail:
        raise Failure(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def standard_texts():
    """Where Rust's toolchain has the standard texts of common licences."""
    return output("rustc", "--print", "sysroot").strip() + "/share/doc/rust/licenses"


def as_label(parts):
    """The SPDX expression of all licences.

    >>> as_label([Part("a", "1", {"public domain", "MIT OR Apache-2.0"}), Part("b", "1", {"MIT"})])
    '(MIT OR Apache-2.0) AND LicenseRef-public-domain AND MIT'
    """
    from parts.bill import is_expression

    terms = set()
    for licence in set().union(*(part.licences for part in parts)):
        if not is_expression(licence):
            licence = "LicenseRef-" + re.sub(r"[^A-Za-z0-9.]", "-", licence)
        terms.add(f"({licence})" if " " in licence else licence)
    return " AND ".join(sorted(terms))

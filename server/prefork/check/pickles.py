"""The pickled models in a directory, and the version of scikit-learn that each was written with, without unpickling.

Every estimator's state ends with the key `_sklearn_version` and its value, both as pickle's opcodes for short text:

    8c 10 "_sklearn_version" [94 | 71 n | 72 nnnn] 8c len "1.6.1"      protocol 4 and 5
    58 10 00 00 00 "_sklearn_version" [71 n] 58 len(4) "1.6.1"         protocol 2 and 3

joblib puts arrays as they are between the opcodes, so the bytes are searched and not the opcodes one by one.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import msgspec

_SUFFIXES = {".pkl", ".pickle", ".joblib", ".sav", ".jl"}
_MOST_FILES = 200
_MOST_BYTES = 1 << 30
"""Of each file, as decompressed, that are searched."""

_VERSION = re.compile(
    rb"_sklearn_version(?:\x94|q.|r.{4})?(?:\x8c(?P<short>.)|X(?P<long>.{4}))(?P<text>[0-9][0-9a-z.+-]*)", re.DOTALL
)
_SKIPPED = {"site-packages", "node_modules", "__pycache__"}


class Pickled(msgspec.Struct, frozen=True):
    """A pickled file. written: the versions of scikit-learn in it; installed: the one that would read it, or nothing."""

    path: str
    written: tuple[str, ...]
    installed: str

    @property
    def fits(self) -> bool:
        """Whether it would be read by the version that wrote it."""
        return all(version == self.installed for version in self.written)


def pickled(folders: Iterable[Path]) -> list[Pickled]:
    """Every pickled file below the folders that says a version."""
    installed = version("scikit-learn")
    found = []
    for folder in dict.fromkeys(each.resolve() for each in folders):
        for path in _files(folder):
            written = tuple(sorted(set(_versions(path))))
            if written:
                found.append(Pickled(str(path.relative_to(folder)), written, installed))
    return found


def version(distribution: str) -> str:
    """The installed version of a distribution; nothing where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _files(folder: Path) -> Iterator[Path]:
    count = 0
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.suffix not in _SUFFIXES or any(part in _SKIPPED or part.startswith(".") for part in parts):
            continue
        count += 1
        if count > _MOST_FILES:
            return
        if path.is_file():
            yield path


def _versions(path: Path) -> Iterator[str]:
    for match in _VERSION.finditer(_content(path)):
        length = match["short"] or match["long"]
        yield match["text"][: int.from_bytes(length, "little")].decode()


def _content(path: Path) -> bytes:
    """The bytes of a file, decompressed where it is compressed as joblib does it; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(6)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as stream:
                return stream.read(_MOST_BYTES)
        if head.startswith(b"BZh"):
            with bz2.open(path) as stream:
                return stream.read(_MOST_BYTES)
        if head.startswith((b"\xfd7zXZ", b"\x5d\x00")):
            with lzma.open(path) as stream:
                return stream.read(_MOST_BYTES)
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES)
        return zlib.decompressobj().decompress(content, _MOST_BYTES) if head[:1] == b"\x78" else content
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return b""

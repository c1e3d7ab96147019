"""Pickled files: what they are without running them, and whether they may be run. Reading a pickle runs whatever stands in it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickletools
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefork.errors import ModelLoadError

_HEAD = 1 << 16
_OPENERS: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ", lzma.LZMAFile),
    (b"\x5d\x00", lzma.LZMAFile),
)
"""What joblib compresses with, beside zlib, by the first bytes."""


def packages(path: Path) -> set[str]:
    """The top-level packages whose classes the beginning of a pickle names; none for what is no pickle."""
    found: set[str] = set()
    texts: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(_head(path))):
            if opcode.name == "GLOBAL":
                found.add(str(argument).partition(" ")[0].partition(".")[0])
            elif opcode.name == "STACK_GLOBAL" and len(texts) > 1:
                found.add(texts[-2].partition(".")[0])
            elif isinstance(argument, str):
                texts.append(argument)
    except Exception:  # noqa: BLE001 - it was cut off, or is no pickle: what was seen counts
        return found
    return found


def _head(path: Path) -> bytes:
    """The first bytes of what was pickled; nothing for what is no pickle."""
    try:
        with path.open("rb") as file:
            first = file.read(6)
            file.seek(0)
            if first[:1] == b"\x78":
                return _pickled(zlib.decompressobj().decompress(file.read(_HEAD), _HEAD))
            opener = next((opener for magic, opener in _OPENERS if first.startswith(magic)), None)
            return _pickled((opener(file) if opener else file).read(_HEAD))
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return b""


def _pickled(data: bytes) -> bytes:
    """The data if it may be a pickle: PROTO stands first in each that was written since Python 2.3."""
    return data if data[:1] == b"\x80" and data[1:2] <= b"\x05" else b""


def check_safe(path: Path, *, allowed: bool) -> None:
    """Raise ModelLoadError for a pickle that others could have written.

    That is: its file, or a folder above it, can be written by everybody, or belongs to another user who is not root. A folder with
    the sticky bit, as /tmp, lets nobody replace another's file.
    """
    if allowed:
        return
    path = path.resolve()
    for each in (path, *path.parents):
        status = each.stat()
        is_sticky = each != path and status.st_mode & stat.S_ISVTX
        if status.st_mode & stat.S_IWOTH and not is_sticky:
            raise _unsafe(path, f"everybody can write {each}")
        if each in (path, path.parent) and status.st_uid not in (0, os.geteuid()) and os.geteuid():
            raise _unsafe(path, f"{each} belongs to another user (uid {status.st_uid})")


def _unsafe(path: Path, why: str) -> ModelLoadError:
    return ModelLoadError(
        f"{path} is a pickle, which runs code when it is read, and {why}; take that away (chmod o-w), save the model as ONNX, skops "
        "or safetensors, or say allow_pickle"
    )

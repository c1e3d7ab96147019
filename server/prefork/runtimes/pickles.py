"""Pickled files: what they are without running them, and whether they may be run. Reading a pickle runs whatever stands in it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickletools
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from prefork.errors import ModelLoadError

_HEAD = 1 << 16
_STEP = 1 << 20
_SEARCHED = 256 << 20
"""Bytes of what was pickled that are looked through for a version."""
_LINKS = 40
"""Symbolic links that are followed, as many as Linux follows."""


def _lz4(file: Any) -> Any:
    """As joblib reads it: with a package that is there where such a file was written."""
    try:
        import lz4.frame
    except ImportError:
        raise EOFError from None
    return lz4.frame.LZ4FrameFile(file)


_OPENERS: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ", lzma.LZMAFile),
    (b"\x5d\x00", lzma.LZMAFile),
    (b"\x04\x22\x4d\x18", _lz4),
)
"""What joblib compresses with, beside zlib, by the first bytes."""
_UNREADABLE = (OSError, EOFError, RuntimeError, zlib.error, lzma.LZMAError)
"""What the openers raise for bytes that only begin as theirs do."""


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


def is_pickle(path: Path) -> bool:
    """Whether a file begins as a pickle, compressed or not."""
    return bool(_head(path))


def written_by(path: Path, key: str) -> str:
    r"""The version that stands under a key such as `_sklearn_version` in a pickle, found without running it; empty where there is none.

    A text is `X` and four bytes of length, or `\x8c` and one; what an object's state says twice is said by reference the second
    time. `\x94` and `q` with a byte, or `r` with four, only number it.
    """
    pattern = re.compile(re.escape(key.encode()) + rb"(?:\x94|q.|r....)?(?:\x8c(.)|X(....))([0-9][!-~]*)", re.DOTALL)
    before = b""
    for piece in _pieces(path):
        found = pattern.search(before + piece)
        if found is not None and found.end() < len(before) + len(piece):
            return found[3][: int.from_bytes(found[1] or found[2], "little")].decode()
        before = piece[-100:]
    return ""


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            source = _opened(file)
            for _ in range(0, _SEARCHED, _STEP):
                piece = source(_STEP)
                if not piece:
                    return
                yield piece
    except _UNREADABLE:
        return


def _opened(file: IO[bytes]) -> Callable[[int], bytes]:
    """Reads up to so many bytes of what is in the file once it is unpacked."""
    first = file.read(6)
    file.seek(0)
    if first[:1] == b"\x78":
        unpacker = zlib.decompressobj()
        return lambda size: unpacker.decompress(unpacker.unconsumed_tail or file.read(size), size)
    opener = next((opener for magic, opener in _OPENERS if first.startswith(magic)), None)
    reader: Callable[[int], bytes] = (opener(file) if opener else file).read
    return reader


def _head(path: Path) -> bytes:
    """The first bytes of what was pickled; nothing for what is no pickle."""
    try:
        with path.open("rb") as file:
            return _pickled(_opened(file)(_HEAD))
    except _UNREADABLE:
        return b""


def _pickled(data: bytes) -> bytes:
    """The data if it may be a pickle: PROTO stands first in each that was written since Python 2.3."""
    return data if data[:1] == b"\x80" and data[1:2] <= b"\x05" else b""


# --- whether it may be read ---------------------------------------------------------------------------------------


def check_safe(path: Path, *, allowed: bool, user: int | None = None, what: str = "is a pickle, which") -> None:
    """Raise ModelLoadError for a pickle that others could have written.

    That is: everybody can write it, or a folder that leads to it, also by a symbolic link; or the file, the folder that it is in
    or a link belongs to another user who is not root. A folder with the sticky bit, as /tmp, lets nobody replace another's file.
    What belongs to others is not looked at for root, who reads volumes that others own. user: who reads, the process's own.
    what: the sentence's beginning, for what else runs code.
    """
    if allowed:
        return
    reader = os.geteuid() if user is None else user
    own = set(_own(path))
    for each in dict.fromkeys((*_leading(path.absolute()), *sorted(own))):
        status = each.lstat()
        is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        is_link = stat.S_ISLNK(status.st_mode)
        if status.st_mode & stat.S_IWOTH and not is_sticky and not is_link:
            raise _unsafe(path, what, f"everybody can write {each}")
        if (is_link or each in own) and status.st_uid not in (0, reader) and reader:
            raise _unsafe(path, what, f"{each} belongs to another user (uid {status.st_uid})")


def _own(path: Path) -> tuple[Path, ...]:
    """The file, or a folder with all that is in it; and the folder around it."""
    path = path.resolve()
    return (*(path.rglob("*") if path.is_dir() else ()), path, path.parent)


def _leading(path: Path) -> Iterator[Path]:
    """Every folder and link on the way to a file, and the file: whoever can write one of them chooses what is read."""
    at, rest, links = Path(path.anchor), list(path.parts[1:]), 0
    yield at
    while rest:
        part = rest.pop(0)
        at = at.parent if part == ".." else at / part
        yield at
        if at.is_symlink() and links < _LINKS:
            links += 1
            target = at.readlink()
            rest = [*target.parts[target.is_absolute() :], *rest]
            at = Path(target.anchor) if target.is_absolute() else at.parent


def _unsafe(path: Path, what: str, why: str) -> ModelLoadError:
    return ModelLoadError(
        f"{path} {what} runs code when it is read, and {why}; take that away (chmod o-w), save the model as ONNX, skops "
        "or safetensors, or say allow_pickle"
    )

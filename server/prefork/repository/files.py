"""A model's files, read whole. Only regular ones are opened: a named pipe would keep the reader waiting, and a device may have no end."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

LARGEST = 64 << 20
"""Bytes of what is read whole: configs, labels, source and warm-up data. Weights are the runtimes' business."""

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def odd(path: Path) -> str:
    """What is there instead of a file or a folder, in words; else empty. Raises OSError where it cannot be looked at."""
    mode = path.stat().st_mode
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "")


def check(path: Path) -> None:
    """Raises OSError for what is neither a file nor a folder."""
    if words := odd(path):
        raise OSError(errno.EINVAL, f"it is {words}, and a file is needed", str(path))


def read(path: Path) -> bytes:
    """The bytes of a file. Raises OSError."""
    check(path)  # before it is opened, which can wait for ever
    if path.stat().st_size > LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST >> 20} MiB", str(path))
    return path.read_bytes()


def text(path: Path) -> str:
    """The text of a file in UTF-8. Raises OSError and UnicodeDecodeError."""
    return read(path).decode()

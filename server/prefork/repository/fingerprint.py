"""What shows that a version's files are not those of before, without reading them.

A folder's stamp is made of every file's path, size, times and inode, so that a folder that was replaced by an older
one, or by one with the same times, is another. `__pycache__` and what begins with a dot, which running models and tools
write, are not looked at; links are followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from prefork.repository.config import ModelConfig, VersionPolicy

Line = tuple[str, int, int, int, int]


def is_ignored(name: str) -> bool:
    """Whether nothing of that name is part of a model."""
    return name.startswith(".") or name == "__pycache__"


def folder(path: Path, leave_out: Collection[str] = ()) -> str:
    """The stamp of all files in a folder but those whose first part is left out; of a folder that is not there, empty."""
    lines = sorted(_lines(path, "", leave_out, ()))
    there = _seen(os.stat, path)
    return _digest(lines) if there is not None and stat.S_ISDIR(there.st_mode) else ""


def version(config: ModelConfig, *stamps: str) -> str:
    """The fingerprint of a version: what it is asked to be, and the stamps of its files.

    Which versions are served is no part of it: a new policy must not touch the versions that stay.
    """
    # Levels of priority are numbers, which msgspec does not sort as keys.
    plain = msgspec.to_builtins(msgspec.structs.replace(config, versions=VersionPolicy()), str_keys=True)
    return _digest([msgspec.json.encode(plain, order="sorted").decode(), *stamps])


def text(*parts: str) -> str:
    """The fingerprint of texts."""
    return _digest(list(parts))


def _lines(path: Path, inside: str, leave_out: Collection[str], above: tuple[tuple[int, int], ...]) -> Iterator[Line]:
    """A line a file. A link into a folder that is being walked already is not followed again."""
    for name in _names(path):
        if is_ignored(name) or name in leave_out:
            continue
        there = _seen(os.stat, path / name) or _seen(os.lstat, path / name)
        if there is None:
            continue
        here = f"{inside}{name}"
        if not stat.S_ISDIR(there.st_mode):
            yield here, there.st_size, there.st_mtime_ns, there.st_ctime_ns, there.st_ino
            continue
        # A folder's own times change with what is ignored in it.
        yield here, 0, 0, 0, there.st_ino
        identity = (there.st_dev, there.st_ino)
        if identity not in above:
            yield from _lines(path / name, f"{here}/", (), (*above, identity))


def _names(path: Path) -> list[str]:
    """What is in a folder; one that goes while it is walked is empty, and the next walk sees it."""
    try:
        return [each.name for each in path.iterdir()]
    except OSError:
        return []


def _seen(look: Callable[[Path], os.stat_result], path: Path) -> os.stat_result | None:
    try:
        return look(path)
    except OSError:
        return None


def _digest(value: list[str] | list[Line]) -> str:
    # The names of files need be no UTF-8, which msgspec's JSON does not take.
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()

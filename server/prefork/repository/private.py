"""Files that a client sent, in a folder that only this process may write to. No path gets out of it, not by a link either."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from prefork.errors import RepositoryError

_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make(parent: Path | None) -> Path:
    """A new folder, in the system's place for temporary ones where no parent is given."""
    return Path(tempfile.mkdtemp(prefix="prefork-override-", dir=parent))


def remove(folder: Path) -> None:
    """The folder and all that is in it; one that has gone already is no trouble."""
    shutil.rmtree(folder, ignore_errors=True)


def write(folder: Path, path: str, data: bytes) -> None:
    """A new file. path: relative, its parts divided by `/`; folders on the way are made.

    Raises RepositoryError for a path that leads out of the folder, and where the file cannot be written.
    """
    parts = path.split("/")
    if not all(parts) or any(part in (".", "..") or "\\" in part or "\0" in part for part in parts):
        raise RepositoryError(f"file:{path}: a relative path of plain names is needed")
    try:
        _write(folder, parts, data)
    except OSError as error:
        raise RepositoryError(f"file:{path}: cannot be written: {error.strerror}") from None


def _write(folder: Path, parts: list[str], data: bytes) -> None:
    """Each step starts at the open folder of the step before, and follows no link, so that nothing can be put in between."""
    place = os.open(folder, _INTO)
    try:
        for part in parts[:-1]:
            inner = _enter(place, part)
            os.close(place)
            place = inner
        with os.fdopen(os.open(parts[-1], _NEW, 0o600, dir_fd=place), "wb") as file:
            file.write(data)
    finally:
        os.close(place)


def _enter(place: int, part: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, 0o700, dir_fd=place)
    return os.open(part, _INTO, dir_fd=place)

"""One folder of models, `<path>/<name>/`, and whether it can be seen at all.

While it cannot - it is not mounted, a disk or a network fails, a permission is missing - it is as it was before: an outage deletes no
model. Who removes models removes their folders, not the one around them.
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path

from prefork.errors import RepositoryError
from prefork.repository import fingerprint

_log = logging.getLogger("prefork.repository")


class Root:
    """The folder at a path. Raises RepositoryError where it cannot be read at the beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names: dict[str, Path] = {}
        self._stamps: dict[str, str] = {}
        self._identity: tuple[int, int] | None = None
        self._trouble = ""
        try:
            self._look()
        except OSError as error:
            raise RepositoryError(f"repository {path}: {error.strerror}") from None

    def names(self) -> list[str]:
        """Every folder in it that may be a model; those of before while it is away."""
        try:
            self._look()
        except OSError as error:
            self._is_away(error.strerror or str(error))
        return list(self._names)

    def folder(self, name: str) -> Path:
        """Where the files of that name are, or would be. Its own name is another one only where that is no UTF-8."""
        return self._names.get(name, self.path / name)

    def stamp(self, name: str) -> str:
        """A text that is equal as long as the files of that name are; empty where there is none. That of before while it is away."""
        before = self._stamps.get(name, "")
        found = fingerprint.folder(self.folder(name))
        if found == before:
            return found
        if before:
            self.names()  # what looks changed may be the beginning of an outage
        if self._trouble or (not found and name in self._names):
            return before
        self._stamps[name] = found
        return found

    def _look(self) -> None:
        there = self.path.stat()
        folders = [each for each in self.path.iterdir() if not fingerprint.is_ignored(each.name)]
        names = {_shown(each.name): each for each in folders if _is_folder(each)}
        identity = (there.st_dev, there.st_ino)
        if self._names and not names and identity != self._identity:
            self._is_away("it is empty now and another folder than before; perhaps it is not mounted")
            return
        self._names, self._identity = names, identity
        if self._trouble:
            _log.info("repository %s is back", self.path)
        self._trouble = ""

    def _is_away(self, why: str) -> None:
        if why != self._trouble:
            _log.error("repository %s cannot be read: %s; what is loaded stays loaded", self.path, why)
        self._trouble = why


def _shown(name: str) -> str:
    r"""A name that is no UTF-8 has its bytes as `\xff`, since it goes into JSON."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _is_folder(path: Path) -> bool:
    """Also where that cannot be told: it is its model's error then, and not its end."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return not path.is_symlink()

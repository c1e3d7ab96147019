"""The models of one or more folders of models, by name.

Nothing is remembered but the overrides that loads have brought: every question looks at the disk. What is wrong with one
model is that model's error and no other's.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from prefork.errors import NotFound, RepositoryError
from prefork.repository import fingerprint, folder
from prefork.repository.folder import Found, Known
from prefork.repository.overrides import Override
from prefork.repository.root import Root
from prefork.settings.setting import segment

LONGEST_NAME = 200
"""Bytes of a model's name: it is a part of paths and file names."""


class _Kept(NamedTuple):
    override: Override
    config_stamp: str


class Repository:
    """Folders of models, `<path>/<name>/`.

    known: what else than a class may be served. config_name: of the file in models' `configs` that is read. Raises RepositoryError for a path that is no folder.
    """

    def __init__(self, paths: Iterable[str | Path], known: Known | None = None, config_name: str = "") -> None:
        self.paths = tuple(dict.fromkeys(Path(path).absolute() for path in paths))
        self._roots = tuple(Root(path) for path in self.paths)
        self._known = known
        self._config_name = config_name
        self._kept: dict[str, _Kept] = {}

    def names(self) -> list[str]:
        """Every name that has a folder, or a kept override, in order; whether it can be served is another matter."""
        return sorted({*self._folders(), *self._kept})

    def scan(self) -> dict[str, Found | RepositoryError]:
        """What there is under every name, or why it cannot be served."""
        return {name: self._tried(name) for name in self.names()}

    def find(self, name: str, override: Override | None = None) -> Found:
        """What is to be loaded under a name, with the override, or with the one that was kept as long as nobody touches the model's config.

        Raises NotFound for a name that has no folder (and no override with files), RepositoryError with what is wrong.
        """
        _check_name(name)
        override = override or self._still_kept(name)
        if override is not None and override.folder is not None:
            found = self._read(override.folder, name, override)
            return msgspec.structs.replace(found, config_stamp=self._config_stamp(name))
        return self._read(self._folder(name), name, override)

    def keep(self, found: Found) -> None:
        """Remember, after a load that went well, the override that it had, for plain loads to come; or that it had none."""
        before = self._kept.get(found.name)
        if found.override is None:
            self.forget(found.name)
            return
        self._kept[found.name] = _Kept(found.override.hold(), found.config_stamp)
        if before is not None:
            before.override.release()

    def forget(self, name: str) -> None:
        """Forget a name's override: after an unload the model is again what its folder says."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            kept.override.release()

    def stamp(self, name: str) -> str:
        """A stamp of all files of a name; equal as long as nothing has changed, empty where there is no folder of it. For `Settled`.

        That of before where a repository is away.
        """
        stamps = [found for root in self._roots if (found := root.stamp(name))]
        return fingerprint.text(*stamps) if stamps else ""

    def _tried(self, name: str) -> Found | RepositoryError:
        try:
            return self.find(name)
        except RepositoryError as error:
            return error
        except NotFound as error:  # it went while the others were looked at
            return RepositoryError(error.message)

    def _read(self, path: Path, name: str, override: Override | None) -> Found:
        """The link that a folder may be is followed once, so that a version stays what it was when the link moves on."""
        path = path.resolve()
        config, notes = (None, ()) if override is None else override.config(path)
        found = folder.read(path, name, config, self._known, self._config_name)
        return msgspec.structs.replace(found, notes=(*notes, *found.notes), override=override)

    def _still_kept(self, name: str) -> Override | None:
        kept = self._kept.get(name)
        return kept.override if kept is not None and kept.config_stamp == self._config_stamp(name) else None

    def _config_stamp(self, name: str) -> str:
        """Of the one folder of that name; empty where there is none, or more."""
        paths = self._folders().get(name, [])
        return folder.config_stamp(paths[0], self._config_name) if len(paths) == 1 else ""

    def _folder(self, name: str) -> Path:
        paths = self._folders().get(name, [])
        if not paths:
            raise NotFound(f"there is no model {name!r} in {', '.join(map(str, self.paths))}")
        if len(paths) > 1:
            places = ", ".join(str(path.parent) for path in paths)
            raise RepositoryError(f"model appears in two or more repositories: {places}")
        if paths[0].name != name:
            raise RepositoryError(f"{name!r} cannot be a model's name: the folder's name is no UTF-8; rename it")
        return paths[0]

    def _folders(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for root in self._roots:
            for name in root.names():
                found.setdefault(name, []).append(root.folder(name))
        return found


def _check_name(name: str) -> None:
    try:
        segment(name)
    except ValueError as error:
        raise RepositoryError(f"{name!r} cannot be a model's name: {error}") from None
    if name.startswith(".") or len(name.encode(errors="surrogateescape")) > LONGEST_NAME:
        raise RepositoryError(
            f"{name!r} cannot be a model's name: it begins with a dot or has over {LONGEST_NAME} bytes"
        )

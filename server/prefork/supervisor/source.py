"""Where models come from: names, and for each the versions that are to be served now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from prefork.errors import NotFound, RepositoryError
from prefork.repository import fingerprint
from prefork.repository.config import ModelConfig
from prefork.repository.folder import Found
from prefork.repository.overrides import Override
from prefork.repository.repository import Repository
from prefork.supervisor.orders import Single


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a model as it is to be loaded. What has the same fingerprint need not be loaded again.

    override: what a load brought instead of the model's own files; it is held as long as the version is loaded.
    """

    name: str
    number: str
    config: ModelConfig
    folder: str = ""
    directory: str = ""
    fingerprint: str = ""
    override: Override | None = None

    def __str__(self) -> str:
        return f"{self.name}/{self.number}"


class Offer(msgspec.Struct, frozen=True):
    """What there is under a name: the versions that are to be served, and notes on what has no effect."""

    versions: tuple[Version, ...]
    notes: tuple[str, ...] = ()
    found: Found | None = None


class Source(Protocol):
    """Models that can be loaded. `names`, `find` and `stamp` look at the disk, may take long, and may be called in any thread."""

    def names(self) -> Sequence[str]:
        """Those there are, also those with something wrong."""
        ...

    def find(self, name: str, override: Override | None = None) -> Offer:
        """What is to be served under a name now. Raises NotFound, or RepositoryError that says what is wrong with it."""
        ...

    def keep(self, offer: Offer) -> None:
        """It was loaded: its override holds for loads to come."""
        ...

    def forget(self, name: str) -> None:
        """It was unloaded: its override is forgotten."""
        ...

    def stamp(self, name: str) -> str:
        """A text that is equal as long as the files of that name are; empty where there are none. For `Settled`."""
        ...


class Singles:
    """Models that need no repository. They have one version, and no override."""

    def __init__(self, singles: Sequence[Single]) -> None:
        self._singles = {each.config.name: each for each in singles}

    def names(self) -> Sequence[str]:
        """Their names."""
        return list(self._singles)

    def find(self, name: str, override: Override | None = None) -> Offer:
        """The one version."""
        if name not in self._singles:
            raise NotFound(f"there is no model '{name}'")
        if override is not None:
            raise RepositoryError(f"model '{name}' comes from no repository: its configuration cannot be overridden")
        single = self._singles[name]
        # Only a folder of its own is looked at: a working directory may hold anything, and any amount of it.
        stamp = fingerprint.version(single.config, fingerprint.folder(Path(single.folder)) if single.folder else "")
        version = Version(
            name=name,
            number=single.version,
            config=single.config,
            folder=single.folder,
            directory=single.directory,
            fingerprint=stamp,
        )
        return Offer((version,))

    def keep(self, offer: Offer) -> None:
        """Nothing to keep."""

    def forget(self, name: str) -> None:
        """Nothing to forget."""

    def stamp(self, name: str) -> str:
        """Always the same: they do not change by themselves."""
        return name


class Shelves:
    """A repository, and models beside it that win over its names."""

    def __init__(self, singles: Singles, repository: Repository) -> None:
        self._singles = singles
        self._repository = repository

    def names(self) -> Sequence[str]:
        """Those of both."""
        return list(dict.fromkeys([*self._singles.names(), *self._repository.names()]))

    def find(self, name: str, override: Override | None = None) -> Offer:
        """What is to be served under a name now."""
        if name in self._singles.names():
            return self._singles.find(name, override)
        found = self._repository.find(name, override)
        if any(each.config.host == "worker" for each in found.versions.values()):
            raise RepositoryError(
                f"model '{name}': host: worker is for a server of one class; a repository's models have processes of their own"
            )
        versions = tuple(
            Version(
                name=name,
                number=str(each.number),
                config=each.config,
                folder=str(each.folder),
                directory=str(each.model_folder),
                fingerprint=each.fingerprint,
                override=found.override,
            )
            for each in found.versions.values()
        )
        return Offer(versions, found.notes, found)

    def keep(self, offer: Offer) -> None:
        """Keep the override that it had, if it had one."""
        if offer.found is not None:
            self._repository.keep(offer.found)

    def forget(self, name: str) -> None:
        """Forget its override."""
        self._repository.forget(name)

    def stamp(self, name: str) -> str:
        """That of the repository."""
        return self._singles.stamp(name) if name in self._singles.names() else self._repository.stamp(name)


def order(number: str) -> tuple[int, str]:
    """A sort key for versions: numbers by their size, before them what is no number."""
    return (int(number), "") if number.isdecimal() else (-1, number)

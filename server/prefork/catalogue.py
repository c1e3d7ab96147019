"""What a worker serves: models by name and version, and the one that paths without a name mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from prefork.errors import NotFound, PreforkError
from prefork.instance import Instance
from prefork.payload import ModelSpec
from prefork.repository.config import ModelConfig


class Served(msgspec.Struct, frozen=True):
    """One version of a model that can be asked.

    metadata: Seldon's metadata body, or the error of making it. described: the instance's spec with what
    `init_metadata()` declares, for V2's metadata. config: what the model asked for, for V2's configuration. is_counted: whether
    its answers tell their cost, so that it is counted by its name.
    """

    instance: Instance
    metadata: dict[str, Any] | PreforkError
    described: ModelSpec
    config: ModelConfig = ModelConfig()
    is_counted: bool = False

    @property
    def spec(self) -> ModelSpec:
        """The instance's own description."""
        return self.instance.spec


class Catalogue(Protocol):
    """The models of a server."""

    @property
    def is_async(self) -> bool:
        """Whether they are asked on the worker's event loop."""
        ...

    @property
    def may_block(self) -> bool:
        """Whether any thread may ask them, so that what takes long to decode need not be decoded on the loop."""
        ...

    def find(self, name: str, version: str | None = None) -> Served:
        """The model of that name, in its latest version where none is said.

        Raises NotFound for one that is not known, Unavailable for a version that is known and not ready.
        """
        ...

    def main(self) -> Served:
        """The model of paths without a name. Raises NotFound where there is none, or more than one."""
        ...

    def names(self) -> Sequence[str]:
        """Those that can be asked."""
        ...

    def versions(self, name: str) -> Sequence[str]:
        """Those of a model that can be asked."""
        ...

    def states(self) -> Sequence[tuple[str, str, bool]]:
        """Each model that is known, a version of it, and whether that can be asked."""
        ...

    def is_ready(self) -> bool:
        """Whether requests should be sent here."""
        ...


class Single:
    """A catalogue of one."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.is_async = served.instance.is_async
        self.may_block = False

    def find(self, name: str, version: str | None = None) -> Served:
        """The model, if it is the one that is meant."""
        spec = self._served.instance.spec
        if name != spec.name:
            raise unknown(name)
        if version is not None and version != spec.version:
            raise unknown(name, version)
        return self._served

    def main(self) -> Served:
        """The model."""
        return self._served

    def names(self) -> Sequence[str]:
        """Its name."""
        return [self._served.spec.name]

    def versions(self, name: str) -> Sequence[str]:
        """Its version."""
        return [self.find(name).spec.version]

    def states(self) -> Sequence[tuple[str, str, bool]]:
        """The model, and whether it was not unloaded."""
        return [(self._served.spec.name, self._served.spec.version, self._served.instance.ready())]

    def is_ready(self) -> bool:
        """Whether it was not unloaded."""
        return self._served.instance.ready()


def unknown(name: str, version: str | None = None) -> NotFound:
    """The refusal of a model, or of a version, that is not there. The words are Triton's."""
    which = f"'{name[:100]}'" if version is None else f"'{name[:100]}' version {version[:20]}"
    return NotFound(f"Request for unknown model: {which} is not found")

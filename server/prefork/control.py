"""What the endpoints may ask of whoever loads and unloads models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from prefork.errors import Unavailable


class Standing(msgspec.Struct, omit_defaults=True):
    """One line of V2's repository index. A model that was never loaded has only a name.

    state: LOADING, READY, UNLOADING or UNAVAILABLE, for which `reason` says why.
    """

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


class Freed(msgspec.Struct):
    """What an unload gave back: bytes of memory of the model's processes, PSS and, where there is a GPU, of its memory."""

    memory_before: int = 0
    memory_after: int = 0
    gpu_memory_before: int | None = None
    gpu_memory_after: int | None = None


class Control(Protocol):
    """Loads and unloads models. Each call returns when it is done, and may take as long as a model takes."""

    def index(self) -> Sequence[Standing]:
        """Every model that is known, with the state of each of its versions."""
        ...

    def load(self, name: str, config: Mapping[str, Any] | None, files: Mapping[str, str]) -> None:
        """Load a model, or what has changed of it. files: the text of base64 by `<version>/<path>`.

        Raises BadRequest with the reason when it cannot be loaded: what served before goes on. Raises Unavailable where models
        are not loaded by request.
        """
        ...

    def unload(self, name: str) -> Freed:
        """Unload a model; its processes are gone then. One that is not loaded is no error. Raises Unavailable as `load`."""
        ...


class Fixed:
    """Nobody loads or unloads anything: there is what there is. known: what there is."""

    def __init__(self, known: Sequence[Standing] = ()) -> None:
        self._known = known

    def index(self) -> Sequence[Standing]:
        """What there is."""
        return self._known

    def load(self, name: str, config: Mapping[str, Any] | None, files: Mapping[str, str]) -> None:  # noqa: ARG002 - the protocol's
        """Raise Unavailable."""
        raise not_explicit()

    def unload(self, name: str) -> Freed:  # noqa: ARG002 - as above
        """Raise Unavailable."""
        raise not_explicit()


def not_explicit() -> Unavailable:
    """The refusal where models are not loaded by request. It begins with Triton's words."""
    return Unavailable("explicit model load / unload is not allowed unless the server runs with --control explicit")

"""What an instance process is told when it starts, and what it says of itself once its model is ready. One JSON line each."""

from __future__ import annotations

from typing import Any

import msgspec

from prefork.payload import ModelSpec
from prefork.repository.config import Device, ModelConfig


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """One instance's task.

    folder: the version's, put first on this instance's path; empty where the class is found from `directory` alone.
    directory: the working directory. place: the instance's number among its siblings. listeners: inherited descriptors of
    listening sockets, the most urgent first. timeout: seconds that a thread nobody waits for has to come back; 0 for ever.
    parent: the process that this one must not outlive.
    """

    config: ModelConfig
    version: str = "1"
    folder: str = ""
    directory: str = ""
    place: int = 0
    device: Device | None = None
    listeners: tuple[int, ...] = ()
    parent: int = 0
    timeout: float = 60.0
    max_frame: int = 1 << 32
    metadata: dict[str, Any] | None = None
    image: str = ""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What HTTP workers know of a model in another process.

    spec, described: see `Model`. metadata: Seldon's metadata body, or in `trouble` why there is none.
    is_async: its requests do not occupy a thread there. loaded: seconds that constructor, `load()` and warm-up took.
    """

    spec: ModelSpec
    described: ModelSpec
    metadata: dict[str, Any] = {}
    trouble: str = ""
    is_async: bool = False
    loaded: float = 0.0
    generation: int = 0
    config: ModelConfig = ModelConfig()

"""What the supervisor is told when it starts: one JSON line on a descriptor that it inherits."""

from __future__ import annotations

import os
from typing import Any, Literal

import msgspec

from prefork.repository.config import ModelConfig


class Single(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is served without a repository: its class is found from `directory`, or from `folder` first."""

    config: ModelConfig
    version: str = "1"
    folder: str = ""
    directory: str = ""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's task. Durations are seconds.

    run_dir: a private folder that is there. is_temporary: whether it is to go with the server. lock: a descriptor that is inherited and has the folder's lock; -1 where the supervisor is
    to take it by itself. parent: the process that the supervisor must not outlive; 0 for none.
    config_name: of the file in models' `configs` that is read instead of config.pbtxt. control: who loads models. load_model:
    those to load at the start under `explicit`; "*" is all. singles: models that need no repository; they are loaded at the
    start under every control. load_threads: models that may load at the same time.
    reading_timeout: seconds that reading a model's files may take; more is that model's error.
    timeout: seconds that a thread of an instance nobody waits for has to come back; 0 for ever. metadata, image: see `Charge`.
    said: the environment variables that the operator has set himself, so that no default of ours goes over them.
    """

    run_dir: str
    is_temporary: bool = False
    lock: int = -1
    parent: int = 0
    repositories: tuple[str, ...] = ()
    config_name: str = ""
    control: Literal["none", "explicit", "poll"] = "none"
    load_model: tuple[str, ...] = ()
    poll_seconds: float = 15.0
    reading_timeout: float = 60.0
    load_threads: int = 4
    singles: tuple[Single, ...] = ()
    graceful_timeout: float = 30.0
    timeout: float = 60.0
    max_frame: int = 1 << 32
    metadata: dict[str, Any] | None = None
    image: str = ""
    said: tuple[str, ...] = ()
    log_level: str = "info"


def read(descriptor: int) -> Orders:
    """The orders that come as one line through a pipe or socket, which is closed then. Raises msgspec.ValidationError."""
    with os.fdopen(descriptor, "rb") as source:
        return msgspec.json.decode(source.readline(), type=Orders)

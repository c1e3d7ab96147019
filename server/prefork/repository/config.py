"""What one model asks for: its class or runtime, where it runs, how its requests are batched, which versions are served."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from prefork.payload import TensorSpec

Device = int | str


class Batching(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How requests are put together for one call of the model, and how long they may wait for it.

    max_batch_size: rows in one call; 0 is no batching. max_batch_delay: microseconds that the first request of a batch may
    wait for company. preferred_batch_sizes: sizes that are not waited beyond. retry_alone: on an exception in a merged call
    each request is tried alone, once. priority_levels: 1 is the most urgent, 0 in a request is the default level.
    max_queue: requests that may wait, 0 without limit. queue_timeout: microseconds that a request may wait, 0 without limit;
    timeout_action says whether it is refused then or only goes behind the others.
    """

    max_batch_size: int = 0
    max_batch_delay: int = 0
    preferred_batch_sizes: tuple[int, ...] = ()
    retry_alone: bool = False
    priority_levels: int = 0
    default_priority: int = 0
    max_queue: int = 0
    queue_timeout: int = 0
    allow_timeout_override: bool = True
    timeout_action: Literal["reject", "delay"] = "reject"


class VersionPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which versions are served: the `latest` so many, `all`, or those that are named."""

    latest: int = 1
    all: bool = False
    specific: tuple[int, ...] = ()


class Warmup(msgspec.Struct, frozen=True, omit_defaults=True):
    """One example request that has to pass before the model is ready.

    inputs: V2's JSON inputs; empty generates them from the model's signature. file: a JSON file with the same, in the version's
    folder. count: how often it is asked.
    """

    inputs: tuple[dict[str, Any], ...] = ()
    file: str = ""
    count: int = 1


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"class_": "class"}):
    """Everything that a model's own file, or the settings of a server for one class, can say. Sizes are bytes, times seconds.

    class_: `module:Class`; the module is a file of the version's folder. runtime: who serves saved files without code.
    devices: one instance more for each, `instances` times; an instance sees its own as the only one (CUDA_VISIBLE_DEVICES).
    python: an interpreter or the folder of a virtual environment. memory_limit: 0 is none.
    """

    name: str = ""
    class_: str = ""
    runtime: str = ""
    host: Literal["process", "worker", "auto"] = "process"
    instances: int = 1
    devices: tuple[Device, ...] = ()
    threads: int = 1
    environment: dict[str, str] = {}
    python: str = ""
    allocator: Literal["", "jemalloc", "tcmalloc"] = ""
    memory_limit: int = 0
    parameters: dict[str, Any] = {}
    inputs: tuple[TensorSpec, ...] | None = None
    outputs: tuple[TensorSpec, ...] | None = None
    batching: Batching | None = None
    versions: VersionPolicy = VersionPolicy()
    warmup: tuple[Warmup, ...] = ()
    max_queue: int = 128
    load_timeout: float = 600.0
    unload_timeout: float = 30.0
    platform: str = "python"

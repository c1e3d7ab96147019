"""What one model asks for: its class or runtime, where it runs, how its requests are batched, which versions are served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from prefork.payload import DATATYPES, TensorSpec
from prefork.repository.reading import Wrong, check_json, each, said, structure, values
from prefork.settings import environment, parameters
from prefork.settings.setting import (
    MOST,
    MOST_MICROSECONDS,
    About,
    boolean,
    mapping,
    one_of,
    segment,
    size,
    text,
    whole,
)

Device = int | str
MOST_LEVELS = 100
"""Levels of priority; each has a socket of its own."""


def _sizes(raw: Any) -> tuple[int, ...]:
    return each(whole(1), "sizes")(raw)


def _examples(raw: Any) -> tuple[dict[str, Any], ...]:
    found = each(mapping, "V2's inputs")(raw)
    check_json(found)
    return found


def _parameters(raw: Any) -> dict[str, Any]:
    found = parameters.read(raw)
    check_json(found)
    return found


def _level_queues(raw: Any) -> dict[int, LevelQueue]:
    # JSON's keys are texts.
    named = {str(level): queue for level, queue in raw.items()} if isinstance(raw, Mapping) else raw
    found = values(structure(LevelQueue), "levels to their keys")(named)
    wrong = next((level for level in found if not level.isdecimal() or level.startswith("0")), None)
    if wrong is not None:
        raise Wrong("a level of at least 1 is needed", wrong)
    return {int(level): queue for level, queue in found.items()}


def _allocator(raw: Any) -> str:
    return "" if raw == "" else str(one_of("jemalloc", "tcmalloc")(raw))


MaxQueue = Annotated[int, About("Requests that may wait, 0 without limit.")]
QueueTimeout = Annotated[
    int, About("Microseconds that a request may wait, 0 without limit.", read=whole(0, MOST_MICROSECONDS))
]
TimeoutOverride = Annotated[bool, About("Whether a request may give itself less time to wait.")]
TimeoutAction = Annotated[
    Literal["reject", "delay"],
    About("What becomes of a request that has waited so long: refused, or only put behind the others."),
]


class LevelQueue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the requests of one level of priority wait: all of it, whatever `batching` says of the others."""

    max_queue: MaxQueue = 0
    queue_timeout: QueueTimeout = 0
    allow_timeout_override: TimeoutOverride = True
    timeout_action: TimeoutAction = "reject"


class Batching(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How requests are put together for one call of the model, and how long they may wait for it."""

    max_batch_size: Annotated[int, About("Rows in one call of the model; 0 is no batching.")] = 0
    max_batch_delay: Annotated[
        int,
        About("Microseconds that the first request of a batch may wait for company.", read=whole(0, MOST_MICROSECONDS)),
    ] = 0
    preferred_batch_sizes: Annotated[
        tuple[int, ...], About("Sizes of batches that are not waited beyond.", read=_sizes)
    ] = ()
    retry_alone: Annotated[bool, About("When a call for several requests raises, try each of them alone, once.")] = (
        False
    )
    priority_levels: Annotated[
        int,
        About(
            "Levels of priority; 1 is the most urgent, and 0 in a request is the default level. 0 is none.",
            read=whole(0, MOST_LEVELS),
        ),
    ] = 0
    default_priority: Annotated[int, About("The level of a request that says none.")] = 0
    max_queue: MaxQueue = 0
    queue_timeout: QueueTimeout = 0
    allow_timeout_override: TimeoutOverride = True
    timeout_action: TimeoutAction = "reject"
    priority_queues: Annotated[
        dict[int, LevelQueue],
        About("Levels that wait on other terms: a mapping of levels to the four keys above.", read=_level_queues),
    ] = {}

    def queue(self, level: int) -> Batching | LevelQueue:
        """On which terms the requests of a level wait."""
        return self.priority_queues.get(level, self)


class VersionPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which versions are served: the `latest` so many, `all`, or those that are named."""

    latest: Annotated[int, About("So many of the highest versions.", read=whole(1))] = 1
    all: Annotated[bool, About("Every version.")] = False
    specific: Annotated[tuple[int, ...], About("These versions.", read=each(whole(1), "versions"))] = ()


class Warmup(msgspec.Struct, frozen=True, omit_defaults=True):
    """One example request that has to pass before the model is ready."""

    inputs: Annotated[
        tuple[dict[str, Any], ...],
        About(
            "The `inputs` of V2's JSON; none makes them of zeros, of the declared `inputs`, else of the model's signature.",
            read=_examples,
        ),
    ] = ()
    file: Annotated[str, About("A JSON file with the same, in the version's folder or the model's.")] = ""
    count: Annotated[int, About("How often it is asked.", read=whole(1))] = 1


def check_level(level: int, levels: int, *path: str) -> None:
    """Raise Wrong for a level of priority that there is not. path: where it is said."""
    if not 1 <= level <= levels:
        raise Wrong(f"there is no such level; priority_levels is {levels}", *path)


def check_batching(said: Batching) -> None:
    """Raise Wrong for sizes and levels that cannot be meant together."""
    most = said.max_batch_size
    if any(not 1 <= size <= most for size in said.preferred_batch_sizes):
        raise Wrong(f"sizes from 1 to max_batch_size, which is {most}, are needed", "preferred_batch_sizes")
    if said.default_priority:
        check_level(said.default_priority, said.priority_levels, "default_priority")
    for level in said.priority_queues:
        check_level(level, said.priority_levels, "priority_queues", str(level))


def _batching(raw: Any) -> Batching:
    found = structure(Batching)(raw)
    check_batching(found)
    return found


def _versions(raw: Any) -> VersionPolicy:
    """The policy; `all` and a list of versions are its short forms."""
    if raw == "all":
        return VersionPolicy(all=True)
    if isinstance(raw, list):
        return _versions({"specific": raw})
    given = said(raw, VersionPolicy)
    if len(given) > 1:
        raise Wrong(f"only one of {', '.join(given)} can be meant")
    if given.get("specific") == ():
        raise Wrong("at least one version is needed", "specific")
    return VersionPolicy(**given)


def _warmup(raw: Any) -> tuple[Warmup, ...]:
    """The requests; `true` is one made from the signature, a text is a file, and one may stand without the list."""
    if isinstance(raw, bool):
        return (Warmup(),) if raw else ()
    return each(_one_warmup, "requests")(raw if isinstance(raw, list | tuple) else [raw])


def _one_warmup(raw: Any) -> Warmup:
    return Warmup(file=raw) if isinstance(raw, str) else structure(Warmup)(raw)


def _devices(raw: Any) -> tuple[Device, ...]:
    return each(_device, "devices")(raw if isinstance(raw, list | tuple) else [raw])


def _device(raw: Any) -> Device:
    if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0:
        return raw
    if isinstance(raw, str) and text(raw):
        return int(raw) if raw.isdecimal() else raw
    raise Wrong("a device's number or identifier is needed")


def _datatype(raw: Any) -> str:
    known = (*DATATYPES, "BF16")
    if raw not in known:
        raise Wrong(f"one of {', '.join(known)} is needed")
    return str(raw)


def tensors(raw: Any) -> tuple[TensorSpec, ...]:
    """A reader of named tensors, each a mapping of `name`, `datatype`, `shape` and `optional`."""
    found = each(_tensor, "tensors, each with name, datatype and shape")(raw)
    names = [tensor.name for tensor in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Wrong(f"two tensors are called {twice!r}")
    return found


def _tensor(raw: Any) -> TensorSpec:
    given = said(raw, _Tensor)
    if "name" not in given:
        raise Wrong("a name is needed")
    return TensorSpec(**given)


class _Tensor(msgspec.Struct):
    """How a `TensorSpec` is written in a file."""

    name: Annotated[str, About("", read=text)]
    datatype: Annotated[str, About("", read=_datatype)]
    shape: Annotated[tuple[int, ...], About("", read=each(whole(-1), "sizes, one an axis, -1 for any"))]
    optional: Annotated[bool, About("", read=boolean)]


def _labels(raw: Any) -> dict[str, tuple[str, ...]]:
    found = values(each(text, "labels"), "outputs' names to lists of labels")(raw)
    odd = next((name for name, labels in found.items() if not name or not labels), None)
    if odd is not None:
        raise Wrong("at least one label is needed" if odd else "the name of an output is needed", odd)
    return found


def _environment(raw: Any) -> dict[str, str]:
    found = values(text, "variables to texts")(raw)
    for name in found:
        try:
            environment.check_name(name)
        except ValueError as error:
            raise Wrong(error, name) from None
    return found


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"class_": "class"}):
    """Everything that a model's own file, or the settings of a server for one class, can say. Sizes are bytes, times seconds."""

    name: Annotated[
        str, About("The model's name; if it is said, it has to be the folder's.", default="the folder's", read=segment)
    ] = ""
    class_: Annotated[
        str,
        About(
            "`module:Class`, or `Class` of the module of the same name. The module is a file of the version's folder, or "
            "of the model's.",
            default="what the folder tells",
        ),
    ] = ""
    runtime: Annotated[
        str, About("Who serves saved files without code; instead of `class`.", default="what the folder tells")
    ] = ""
    file: Annotated[
        str,
        About(
            "The file in the version's folder that is served, where `class` does not say it.",
            default="`model.py`, or the one saved model",
        ),
    ] = ""
    allow_pickle: Annotated[
        bool,
        About("Read a pickled model although others than its owner can write it; reading it runs what stands in it."),
    ] = False
    host: Annotated[
        Literal["process", "worker", "auto"],
        About("Where the model lives: in processes of its own, or in every HTTP worker."),
    ] = "process"
    instances: Annotated[
        int, About("Processes of each version; with `devices`, for each of them.", read=whole(1, MOST))
    ] = 1
    devices: Annotated[
        tuple[Device, ...],
        About(
            "GPUs, by number or identifier; each instance sees its own as the only one. `cpu` is none of them.",
            read=_devices,
        ),
    ] = ()
    threads: Annotated[
        int, About("Threads in each instance that call the model; 1 never calls it twice at once.", read=whole(1, MOST))
    ] = 1
    environment: Annotated[dict[str, str], About("Environment variables for the instances.", read=_environment)] = {}
    python: Annotated[
        str,
        About(
            "The interpreter, or the folder of a virtual environment, for the instances. A relative path with a slash "
            "starts at the model's folder.",
            default="the server's own",
        ),
    ] = ""
    allocator: Annotated[
        Literal["", "jemalloc", "tcmalloc"],
        About("The memory allocator to preload into the instances.", default="the C library's", read=_allocator),
    ] = ""
    memory_limit: Annotated[
        int, About("Bytes of memory that an instance may have, as in `2G`; 0 is no limit.", read=size)
    ] = 0
    parameters: Annotated[
        dict[str, Any],
        About(
            "Arguments for the class's constructor; also Seldon's list of `name`, `type`, `value`.",
            read=_parameters,
        ),
    ] = {}
    inputs: Annotated[
        tuple[TensorSpec, ...] | None,
        About(
            "Tensors that it takes: a list of `name`, `datatype`, `shape` (-1 for any size), `optional`.",
            default="the class's signature",
            read=tensors,
        ),
    ] = None
    outputs: Annotated[
        tuple[TensorSpec, ...] | None,
        About("Tensors that it answers, in the same form.", default="the class's signature", read=tensors),
    ] = None
    labels: Annotated[
        dict[str, tuple[str, ...]],
        About("Labels of an output's classes: a mapping of outputs' names to lists of texts.", read=_labels),
    ] = {}
    decoupled: Annotated[bool, About("A request may have any number of answers.")] = False
    max_rows: Annotated[
        int, About("Rows that one request may have, along the first axis of its inputs; 0 is no limit.")
    ] = 0
    batching: Annotated[
        Batching | None, About("How requests are put together; its keys are below.", read=_batching)
    ] = None
    versions: Annotated[
        VersionPolicy,
        About(
            "Which versions are served; its keys are below. Also `all`, or a list of versions.",
            default="the latest one",
            read=_versions,
        ),
    ] = VersionPolicy()
    warmup: Annotated[
        tuple[Warmup, ...],
        About(
            "Requests that have to pass before the model is ready; their keys are below. `true` makes one of zeros of the declared `inputs`, else of the model's signature; "
            "a text is a file.",
            read=_warmup,
        ),
    ] = ()
    max_queue: Annotated[int, About("Requests that may wait for a version; one more gets 503.")] = 128
    load_timeout: Annotated[float, About("Seconds that an instance has to load; 0 is no limit.")] = 600.0
    unload_timeout: Annotated[float, About("Seconds that requests in flight have to finish when it is unloaded.")] = (
        30.0
    )
    platform: Annotated[str, About("The platform that its metadata names.")] = "python"


def read(raw: Any) -> ModelConfig:
    """A config out of a mapping as model.yaml has it. Raises Wrong that names the key."""
    return over(ModelConfig(), raw)


def over(config: ModelConfig, raw: Any) -> ModelConfig:
    """The config with what a mapping says put over it. Raises Wrong that names the key."""
    given: Mapping[str, Any] = said(raw, ModelConfig)
    config = msgspec.structs.replace(config, **given)
    if config.class_ and config.runtime:
        raise Wrong("only one of class and runtime can be meant", "runtime")
    if "labels" in given and config.outputs is not None:
        _check_labelled(config.labels, [each.name for each in config.outputs])
    return config


def _check_labelled(labels: Iterable[str], outputs: Sequence[str]) -> None:
    odd = next((name for name in labels if name not in outputs), None)
    if odd is not None:
        raise Wrong(f"there is no such output; outputs has {', '.join(outputs) or 'none'}", "labels", odd)

"""Triton's model configuration to ours, and ours to what its `/config` answers.

Under `max_batch_size` Triton's dims leave the batch axis out, which is there as -1 in our shapes. What is told to Triton and
has no counterpart here is a note; what would be served wrongly without it (ensembles, sequences) is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from prefork.errors import RepositoryError
from prefork.payload import ModelSpec, TensorSpec
from prefork.repository import files, triton_form, triton_warmup
from prefork.repository import triton_types as triton
from prefork.repository.config import (
    MOST_LEVELS,
    Batching,
    Device,
    LevelQueue,
    ModelConfig,
    VersionPolicy,
    check_batching,
    check_level,
)
from prefork.repository.reading import Wrong
from prefork.settings.setting import LARGEST, MOST, MOST_MICROSECONDS

FILE = "config.pbtxt"
CONFIGS = "configs"
"""A folder of others, `<name>.pbtxt`."""

MODEL_FILE = "model.py"
_OWN = ("EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS")
_FOLDER = "$$TRITON_MODEL_DIRECTORY"


class Read(NamedTuple):
    """A config, and what was said and has no effect."""

    config: ModelConfig
    notes: tuple[str, ...] = ()


def file_in(folder: Path, config_name: str = "") -> Path | None:
    """The model's file: that of the name where there is one, else config.pbtxt; None where there is neither."""
    named = folder / CONFIGS / f"{config_name}.pbtxt"
    return next((each for each in (named if config_name else None, folder / FILE) if each and each.exists()), None)


def read_file(path: Path, folder: Path | None = None) -> Read:
    """A file of Triton's. folder: the model's, if that is not where the file is. Raises RepositoryError that names the file and the line or the field."""
    try:
        return _ours(*triton_form.from_text(files.text(path)), folder or path.parent)
    except OSError as error:
        raise RepositoryError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise RepositoryError(f"{path}: {error}") from None


def read_json(value: Any, folder: Path | None = None) -> Read:
    """A parsed JSON ModelConfig; folder: the model's, for the files that it names. Raises ValueError that names the field."""
    return _ours(*triton_form.from_json(value), folder)


def is_triton(value: dict[str, Any]) -> bool:
    """Whether a JSON config is Triton's rather than ours: a key is only Triton's, or a parameter is written in its way."""
    known = triton_form.fields(triton.TritonConfig).keys() - {"name", "platform", "runtime", "parameters"}
    parameters = value.get("parameters")
    written = list(parameters.values()) if isinstance(parameters, dict) else []
    return any(triton_form.snake(name) in known for name in value) or any(_is_parameter(each) for each in written)


def as_triton(config: ModelConfig, spec: ModelSpec) -> dict[str, Any]:
    """The body of `/config`: the keys that Triton's has, with every default spelt out.

    spec: what the loaded model tells of itself, for what the config does not say. `max_batch_size` is 0 unless every tensor has
    an open first axis. A warm-up's data and the names of label files are left out.
    """
    inputs = config.inputs if config.inputs is not None else spec.inputs or ()
    outputs = config.outputs if config.outputs is not None else spec.outputs or ()
    rows = _batch_size(config, (*inputs, *outputs))
    body = triton.TritonConfig(
        name=spec.name,
        platform="" if config.platform == "python" else config.platform,
        backend=config.runtime or "python",
        version_policy=_policy_out(config.versions),
        max_batch_size=rows,
        input=[_input_out(each, rows) for each in inputs],
        output=[_output_out(each, rows) for each in outputs],
        dynamic_batching=_batching_out(config.batching),
        instance_group=[_group_out(config, spec.name)],
        default_model_filename=config.file or MODEL_FILE,
        parameters={name: triton.Parameter(_parameter_out(value)) for name, value in config.parameters.items()},
        model_warmup=triton_warmup.written(config.warmup),
        model_transaction_policy=triton.Transactions(decoupled=True) if config.decoupled or spec.streams else UNSET,
    )
    built: dict[str, Any] = msgspec.to_builtins(body)
    return built


# --- Triton's to ours ---------------------------------------------------------------------------------------------


def _ours(said: triton.TritonConfig, notes: list[str], folder: Path | None) -> Read:
    _refuse(said)
    rows = said.max_batch_size
    parameters, python = _parameters(said, notes, folder)
    instances, devices = _instances(said.instance_group, notes)
    config = ModelConfig(
        name=said.name,
        runtime="" if said.backend in ("", "python") else said.backend,
        file="" if said.default_model_filename == MODEL_FILE else said.default_model_filename,
        instances=instances,
        devices=devices,
        python=python,
        parameters=parameters,
        inputs=tuple(_tensor(each, f"input.{each.name}", rows) for each in said.input) or None,
        outputs=tuple(_tensor(each, f"output.{each.name}", rows) for each in said.output) or None,
        labels=_labels(said.output, folder),
        decoupled=said.model_transaction_policy is not UNSET and said.model_transaction_policy.decoupled,
        max_rows=rows,
        batching=_batching(said),
        versions=_policy(said.version_policy),
        warmup=triton_warmup.read(said.model_warmup, rows, folder),
        platform=said.platform or "python",
    )
    return Read(config, tuple(notes))


def _refuse(said: triton.TritonConfig) -> None:
    if said.ensemble_scheduling is not UNSET or said.platform == "ensemble":
        raise ValueError("ensemble_scheduling: ensembles are not served here")
    if said.sequence_batching is not UNSET:
        raise ValueError("sequence_batching: sequences are not served here")
    if said.max_batch_size < 0:
        raise ValueError("max_batch_size: a whole number of at least 0 is needed")


def _tensor(said: triton.Input | triton.Output, path: str, rows: int) -> TensorSpec:
    if not said.name:
        raise ValueError(f"{path}name is needed")
    if said.data_type not in triton.DATATYPES:
        raise ValueError(f"{path}: data_type: one of {', '.join(triton.DATATYPES)} is needed")
    if any(size < -1 for size in said.dims):
        raise ValueError(f"{path}: dims: sizes of at least -1 are needed")
    shape = (-1, *said.dims) if rows else tuple(said.dims)
    return TensorSpec(triton.DATATYPES[said.data_type], shape, said.name, getattr(said, "optional", False))


def _labels(outputs: Sequence[triton.Output], folder: Path | None) -> dict[str, tuple[str, ...]]:
    named = {output.name: output.label_filename for output in outputs if output.label_filename}
    return {name: _lines(folder, file, f"output.{name}.label_filename") for name, file in named.items()}


def _lines(folder: Path | None, file: str, path: str) -> tuple[str, ...]:
    if folder is None:
        raise ValueError(f"{path}: there is no folder to read {file} from")
    try:
        return tuple(files.text(folder / file).splitlines())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {file} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _batching(said: triton.TritonConfig) -> Batching | None:
    dynamic = said.dynamic_batching
    if dynamic is UNSET:
        return None
    queue = triton.QueuePolicy() if dynamic.default_queue_policy is UNSET else dynamic.default_queue_policy
    levels = {_level(level, dynamic): each for level, each in dynamic.priority_queue_policy.items()}
    found = Batching(
        max_batch_size=said.max_batch_size,
        max_batch_delay=_within(
            dynamic.max_queue_delay_microseconds, 0, MOST_MICROSECONDS, "dynamic_batching.max_queue_delay_microseconds"
        ),
        preferred_batch_sizes=tuple(dynamic.preferred_batch_size),
        priority_levels=_within(dynamic.priority_levels, 0, MOST_LEVELS, "dynamic_batching.priority_levels"),
        default_priority=dynamic.default_priority_level,
        **_queue(queue, "default_queue_policy"),
        priority_queues={
            level: LevelQueue(**_queue(each, f"priority_queue_policy.{level}")) for level, each in levels.items()
        },
    )
    try:
        check_batching(found)
    except Wrong as error:
        raise Wrong(error, "dynamic_batching") from None
    return found


def _within(value: int, least: int, most: int, path: str) -> int:
    if not least <= value <= most:
        bounds = f"of at least {least}" if most == LARGEST else f"from {least} to {most}"
        raise ValueError(f"{path}: a whole number {bounds} is needed")
    return value


def _level(said: str, dynamic: triton.DynamicBatching) -> int:
    level = int(said) if said.isdecimal() else 0
    check_level(level, dynamic.priority_levels, "dynamic_batching", "priority_queue_policy", said)
    return level


def _queue(said: triton.QueuePolicy, where: str) -> dict[str, Any]:
    action = said.timeout_action.lower()
    if action not in ("reject", "delay"):
        raise ValueError(f"dynamic_batching.{where}.timeout_action: REJECT or DELAY is needed")
    return {
        "max_queue": _within(said.max_queue_size, 0, LARGEST, f"dynamic_batching.{where}.max_queue_size"),
        "queue_timeout": _within(
            said.default_timeout_microseconds,
            0,
            MOST_MICROSECONDS,
            f"dynamic_batching.{where}.default_timeout_microseconds",
        ),
        "allow_timeout_override": said.allow_timeout_override,
        "timeout_action": action,
    }


def _instances(groups: Sequence[triton.InstanceGroup], notes: list[str]) -> tuple[int, tuple[Device, ...]]:
    """How many instances on which devices: a device that has several of them stands there so many times."""
    counts = [max(1, _within(group.count, 0, MOST, "instance_group: count")) for group in groups]
    _within(sum(counts), 0, MOST, "instance_group: the sum of all counts")
    if any(group.kind == "KIND_GPU" and not group.gpus for group in groups):
        notes.append("instance_group: KIND_GPU without gpus gives each instance every GPU")
    if not any(group.gpus for group in groups):
        return sum(counts) or 1, ()
    if len(groups) == 1:
        return counts[0], tuple(groups[0].gpus)
    pairs = zip(groups, counts, strict=True)
    each = [(list[Device](group.gpus) or ["cpu"], count) for group, count in pairs]
    return 1, tuple(device for devices, count in each for device in devices for _ in range(count))


def _policy(said: triton.Versions) -> VersionPolicy:
    if said.all is not UNSET:
        return VersionPolicy(all=True)
    if said.specific is not UNSET:
        if not said.specific.versions or min(said.specific.versions) < 1:
            raise ValueError("version_policy.specific.versions: versions of at least 1 are needed")
        return VersionPolicy(specific=tuple(said.specific.versions))
    return VersionPolicy(latest=1 if said.latest is UNSET else max(1, said.latest.num_versions))


def _parameters(said: triton.TritonConfig, notes: list[str], folder: Path | None) -> tuple[dict[str, Any], str]:
    """The constructor's arguments, and the interpreter's environment."""
    given = {name: each.string_value for name, each in said.parameters.items()}
    python = given.get("EXECUTION_ENV_PATH", "").replace(_FOLDER, str(folder or "."))
    if python.endswith((".tar.gz", ".tgz", ".zip")):
        raise ValueError(f"parameters.EXECUTION_ENV_PATH: unpack {python} and name its folder")
    if "FORCE_CPU_ONLY_INPUT_TENSORS" in given:
        notes.append("parameters.FORCE_CPU_ONLY_INPUT_TENSORS has no effect: inputs are in the CPU's memory")
    return {name: value for name, value in given.items() if name not in _OWN}, python


def _is_parameter(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() in ({"string_value"}, {"stringValue"})


# --- ours to Triton's ---------------------------------------------------------------------------------------------


def _batch_size(config: ModelConfig, tensors: Sequence[TensorSpec]) -> int:
    rows = config.max_rows or (config.batching.max_batch_size if config.batching else 0)
    return rows if all(tensor.shape is None or tensor.shape[:1] == (-1,) for tensor in tensors) else 0


def _dims(tensor: TensorSpec, rows: int) -> list[int]:
    if tensor.shape is None:
        return [-1]
    return list(tensor.shape[1:] if rows else tensor.shape)


def _input_out(tensor: TensorSpec, rows: int) -> triton.Input:
    kind = triton.TYPES[tensor.datatype or "FP64"]
    return triton.Input(name=tensor.name, data_type=kind, dims=_dims(tensor, rows), optional=tensor.optional)


def _output_out(tensor: TensorSpec, rows: int) -> triton.Output:
    return triton.Output(name=tensor.name, data_type=triton.TYPES[tensor.datatype or "FP64"], dims=_dims(tensor, rows))


def _policy_out(policy: VersionPolicy) -> triton.Versions:
    if policy.all:
        return triton.Versions(all={})
    if policy.specific:
        return triton.Versions(specific=triton.Specific(list(policy.specific)))
    return triton.Versions(latest=triton.Latest(policy.latest))


def _batching_out(batching: Batching | None) -> Any:
    if batching is None:
        return UNSET
    is_limited = batching.queue_timeout or batching.max_queue
    return triton.DynamicBatching(
        preferred_batch_size=list(batching.preferred_batch_sizes),
        max_queue_delay_microseconds=batching.max_batch_delay,
        priority_levels=batching.priority_levels,
        default_priority_level=batching.default_priority,
        default_queue_policy=_queue_out(batching) if is_limited else UNSET,
        priority_queue_policy={str(level): _queue_out(each) for level, each in batching.priority_queues.items()},
    )


def _queue_out(queue: Batching | LevelQueue) -> triton.QueuePolicy:
    return triton.QueuePolicy(
        timeout_action=queue.timeout_action.upper(),
        default_timeout_microseconds=queue.queue_timeout,
        allow_timeout_override=queue.allow_timeout_override,
        max_queue_size=queue.max_queue,
    )


def _group_out(config: ModelConfig, name: str) -> triton.InstanceGroup:
    gpus = [device for device in config.devices if isinstance(device, int)]
    kind = "KIND_GPU" if config.devices and config.devices != ("cpu",) else "KIND_CPU"
    return triton.InstanceGroup(name=name, kind=kind, count=config.instances, gpus=gpus)


def _parameter_out(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

"""Triton's ModelConfig as typed structs: the fields that are read, with Triton's defaults, in the order of its own JSON.

A field that Triton's JSON leaves out when it is not said is UNSET here. IGNORED names those that have no effect here.
Source: Triton's model configuration (common/model_config.proto) and recorded `/config` answers.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from prefork import payload

DATATYPES = {f"TYPE_{name}": name for name in (*payload.DATATYPES, "BF16") if name != "BYTES"} | {
    "TYPE_STRING": "BYTES"
}
"""V2's datatypes by Triton's."""
TYPES = {datatype: name for name, datatype in DATATYPES.items()}
"""Triton's datatypes by V2's."""
Message = dict[str, Any] | UnsetType


class Latest(msgspec.Struct):
    """The highest so many versions."""

    num_versions: int = 1


class Specific(msgspec.Struct):
    """The versions that are named."""

    versions: list[int] = []


class Versions(msgspec.Struct):
    """One of three."""

    latest: Latest | UnsetType = UNSET
    all: dict[str, Any] | UnsetType = UNSET
    specific: Specific | UnsetType = UNSET


class Input(msgspec.Struct):
    """One input; under `max_batch_size` its dims have no batch axis."""

    name: str = ""
    data_type: str = "TYPE_INVALID"
    format: str = "FORMAT_NONE"
    dims: list[int] = []
    reshape: Message = UNSET
    is_shape_tensor: bool = False
    allow_ragged_batch: bool = False
    optional: bool = False
    is_non_linear_format_io: bool = False


class Output(msgspec.Struct):
    """One output; label_filename is a file in the model's folder, a label a line."""

    name: str = ""
    data_type: str = "TYPE_INVALID"
    dims: list[int] = []
    reshape: Message = UNSET
    label_filename: str = ""
    is_shape_tensor: bool = False
    is_non_linear_format_io: bool = False


class Pinned(msgspec.Struct):
    """Whether pinned memory is used."""

    enable: bool = True


class Optimization(msgspec.Struct):
    """Nothing of it applies here."""

    priority: str = "PRIORITY_DEFAULT"
    input_pinned_memory: Pinned = msgspec.field(default_factory=Pinned)
    output_pinned_memory: Pinned = msgspec.field(default_factory=Pinned)
    gather_kernel_buffer_threshold: int = 0
    eager_batching: bool = False


class QueuePolicy(msgspec.Struct):
    """How long and how many requests wait."""

    timeout_action: str = "REJECT"
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


class DynamicBatching(msgspec.Struct):
    """How requests are put together."""

    preferred_batch_size: list[int] = []
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy | UnsetType = UNSET
    priority_queue_policy: dict[str, QueuePolicy] = {}


class InstanceGroup(msgspec.Struct):
    """`count` instances, on each of `gpus` where the kind is KIND_GPU. A count of 0 is 1."""

    name: str = ""
    kind: str = "KIND_AUTO"
    count: int = 0
    gpus: list[int] = []
    rate_limiter: Message = UNSET
    secondary_devices: list[Any] = []
    profile: list[str] = []
    passive: bool = False
    host_policy: str = ""


class Parameter(msgspec.Struct):
    """One parameter's text."""

    string_value: str = ""


class WarmupInput(msgspec.Struct):
    """One input of an example request; exactly one of the last three is meant."""

    data_type: str = "TYPE_INVALID"
    dims: list[int] = []
    zero_data: bool | UnsetType = UNSET
    random_data: bool | UnsetType = UNSET
    input_data_file: str | UnsetType = UNSET


class ModelWarmup(msgspec.Struct):
    """One example request."""

    name: str = ""
    batch_size: int = 0
    inputs: dict[str, WarmupInput] = {}
    count: int = 0


class Transactions(msgspec.Struct):
    """Whether a request may have any number of answers."""

    decoupled: bool = False


class TritonConfig(msgspec.Struct):
    """The whole of it."""

    name: str = ""
    platform: str = ""
    backend: str = ""
    runtime: str = ""
    version_policy: Versions = msgspec.field(default_factory=Versions)
    max_batch_size: int = 0
    input: list[Input] = []
    output: list[Output] = []
    batch_input: list[Any] = []
    batch_output: list[Any] = []
    optimization: Optimization = msgspec.field(default_factory=Optimization)
    dynamic_batching: DynamicBatching | UnsetType = UNSET
    sequence_batching: Message = UNSET
    ensemble_scheduling: Message = UNSET
    instance_group: list[InstanceGroup] = []
    default_model_filename: str = ""
    cc_model_filenames: dict[str, str] = {}
    metric_tags: dict[str, str] = {}
    parameters: dict[str, Parameter] = {}
    model_warmup: list[ModelWarmup] = []
    model_transaction_policy: Transactions | UnsetType = UNSET


IGNORED: dict[type[msgspec.Struct], tuple[str, ...]] = {
    TritonConfig: ("batch_input", "batch_output", "optimization", "cc_model_filenames", "metric_tags"),
    Input: ("format", "reshape", "is_shape_tensor", "allow_ragged_batch", "is_non_linear_format_io"),
    Output: ("reshape", "is_shape_tensor", "is_non_linear_format_io"),
    DynamicBatching: ("preserve_ordering",),
    InstanceGroup: ("rate_limiter", "secondary_devices", "profile", "passive", "host_policy"),
}
"""What may be said and has no effect, which is noted where it is said."""

"""Seldon's /metadata body: what a class's `init_metadata()` says, under what the operator's MODEL_METADATA says.

`{"name", "versions", "platform", "inputs", "outputs", "custom"}`; an input or output is `{"name", "datatype", "shape"}` or
`{"messagetype", "schema"}`. Source: the wrapper of Seldon Core 1.17.1.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from prefork.errors import BadMetadata
from prefork.model.hooks import found, is_unimplemented
from prefork.payload import TensorSpec

log = logging.getLogger("prefork")

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"
]


class Port(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An input or an output: a tensor's three fields, or a message's two."""

    name: str | None = None
    datatype: Datatype | None = None
    shape: list[int] | None = None
    messagetype: str | None = None
    schema: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        tensor = (self.name, self.datatype, self.shape)
        message = (self.messagetype, self.schema)
        if None in (message if self.messagetype is not None else tensor):
            raise ValueError("`name`, `datatype` and `shape`, or `messagetype` and `schema` are needed")


class Metadata(msgspec.Struct, forbid_unknown_fields=True):
    """The body."""

    name: str = ""
    versions: list[str] = []
    platform: str = ""
    inputs: list[Port] = []
    outputs: list[Port] = []
    custom: dict[str, str] = {}


def describe(user_object: object, override: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> Metadata:
    """The metadata of an object: the override's fields before its own, its own before the defaults.

    Raises BadMetadata naming the field that is not what it must be.
    """
    said = {**defaults, **_own(user_object), **(override or {})}
    try:
        return msgspec.convert(said, Metadata)
    except msgspec.ValidationError as error:
        raise BadMetadata(f"Model metadata unavailable: {error}") from error


def defaults(name: str, version: str, image: str) -> dict[str, Any]:
    """The name and the version that the image has, split at its last colon; the model's own where there is none."""
    repository, colon, tag = image.rpartition(":")
    return {"name": repository, "versions": [tag]} if colon else {"name": image or name, "versions": [version]}


def ports(specs: Sequence[TensorSpec] | None) -> list[dict[str, Any]]:
    """Inputs or outputs as far as a signature tells their datatypes and shapes."""
    return [
        {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}
        for spec in specs or ()
        if spec.datatype in Datatype.__args__ and spec.shape is not None  # type: ignore[attr-defined]
    ]


def tensors(declared: Sequence[Port]) -> tuple[TensorSpec, ...] | None:
    """What is declared as tensors, for V2's metadata; None where nothing is."""
    found = [port for port in declared if port.name is not None]
    return tuple(TensorSpec(str(port.datatype), tuple(port.shape or ()), str(port.name)) for port in found) or None


def _own(user_object: object) -> dict[str, Any]:
    hook = found(user_object, "init_metadata")
    if hook is None:
        return {}
    try:
        said = hook()
    except Exception as error:
        if is_unimplemented(error):
            return {}
        raise BadMetadata(
            f"Model metadata unavailable: init_metadata() raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(said, dict):
        log.error("init_metadata() returned a %s, not a dict; it is ignored", type(said).__name__)
        return {}
    return said

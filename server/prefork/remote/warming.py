"""The requests that a model is tried with before anybody else may ask it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from prefork.errors import ModelLoadError, PreforkError
from prefork.http import Request
from prefork.model import Model
from prefork.model.example import example
from prefork.payload import ModelSpec, Payload
from prefork.protocols import v2
from prefork.remote.charge import Charge
from prefork.repository.config import Warmup

_NARROW = {"FP16": np.dtype("<f2"), "BF16": np.dtype("<f4")}
"""What V2's JSON has no numbers for; they are read as FP32, which is how BF16 travels here."""


class _Inputs(msgspec.Struct):
    inputs: list[dict[str, Any]]


def warmups(charge: Charge, model: Model, spec: ModelSpec) -> Iterator[Payload]:
    """The requests that the model's file asks for, each as often as it says. Raises ModelLoadError."""
    for warmup in charge.config.warmup:
        for _ in range(warmup.count):
            yield _payload(warmup, charge, model, spec)


def _payload(warmup: Warmup, charge: Charge, model: Model, spec: ModelSpec) -> Payload:
    if warmup.inputs:
        return _of_inputs([dict(each) for each in warmup.inputs], spec)
    if warmup.file:
        return _of_inputs(_file(charge, warmup.file), spec)
    found = example(model, charge.config.inputs)
    if found is None:
        raise ModelLoadError(
            "warmup: the model declares no inputs, with datatype and shape, to make a request from; give `inputs` or a `file`"
        )
    return found[0]


def _of_inputs(inputs: list[dict[str, Any]], spec: ModelSpec) -> Payload:
    narrow = {each.get("name"): _NARROW[each["datatype"]] for each in inputs if each.get("datatype") in _NARROW}
    wide = [{**each, "datatype": "FP32"} if each.get("name") in narrow else each for each in inputs]
    try:
        v2.check_inputs([str(each.get("name")) for each in inputs], spec)
        # Types and shapes are the model's to check: the spec would refuse what was widened, and streams.
        payload, _ = v2.decode(
            Request("POST", "/", b"", {}, (msgspec.json.encode({"inputs": wide}),)), ModelSpec(spec.name)
        )
    except PreforkError as error:
        raise ModelLoadError(f"warmup: {error.message}") from None
    if isinstance(payload.value, dict):
        payload.value = {name: _narrowed(array, narrow.get(name)) for name, array in payload.value.items()}
    return payload


def _narrowed(array: Any, dtype: Any) -> Any:
    return array if dtype is None else array.astype(dtype)


def _file(charge: Charge, name: str) -> list[dict[str, Any]]:
    """The inputs in a file of the version's folder, or of the model's."""
    places = [Path(each) / name for each in (charge.folder, charge.directory) if each]
    path = next((each for each in places if each.is_file()), None)
    if path is None:
        raise ModelLoadError(
            f"warmup: there is no file {name} in {' or '.join(map(str, (each.parent for each in places)))}"
        )
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Inputs).inputs
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelLoadError(f"warmup: {name} cannot be read: {error}") from None

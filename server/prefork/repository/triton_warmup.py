"""Triton's `model_warmup` to V2's JSON inputs: zeros, drawn values or a file of raw tensor bytes, for the model to be asked with.

Drawn values are the same every time, since a version that has not changed must not look as if it had. Files are in the model's
folder `warmup`: little-endian, row-major; BYTES elements are a 4-byte length and the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from prefork import payload
from prefork.repository import files
from prefork.repository.config import Warmup
from prefork.repository.triton_bytes import elements
from prefork.repository.triton_types import DATATYPES, TYPES, ModelWarmup, WarmupInput

LIMIT = 1 << 22
"""The most elements of one input; they travel as JSON."""


def read(said: Sequence[ModelWarmup], rows: int, folder: Path | None) -> tuple[Warmup, ...]:
    """The requests. rows: `max_batch_size`; folder: the model's. Raises ValueError that names the field."""
    return tuple(_request(each, f"model_warmup.{number}", rows, folder) for number, each in enumerate(said, 1))


def written(warmup: Sequence[Warmup]) -> list[ModelWarmup]:
    """The requests as Triton's config shows them, without their data."""
    return [ModelWarmup(inputs=_inputs_out(each), count=each.count) for each in warmup]


def _inputs_out(warmup: Warmup) -> dict[str, WarmupInput]:
    return {
        str(each.get("name", "")): WarmupInput(
            TYPES.get(str(each.get("datatype")), "TYPE_INVALID"), each.get("shape", [])
        )
        for each in warmup.inputs
    }


def _request(said: ModelWarmup, path: str, rows: int, folder: Path | None) -> Warmup:
    if not said.inputs:
        raise ValueError(f"{path}: inputs are needed")
    size = said.batch_size or 1
    if not 1 <= size <= max(1, rows):
        raise ValueError(f"{path}: batch_size: 1 to {max(1, rows)} is needed, which max_batch_size allows")
    batch = [size] if rows else []  # without max_batch_size the dims are all there is
    inputs = [_input(name, each, f"{path}.inputs.{name}", batch, folder) for name, each in said.inputs.items()]
    return Warmup(inputs=tuple(inputs), count=max(1, said.count))


def _input(name: str, said: WarmupInput, path: str, batch: list[int], folder: Path | None) -> dict[str, Any]:
    datatype, shape = DATATYPES.get(said.data_type), [*batch, *said.dims]
    count = math.prod(shape)
    if datatype is None:
        raise ValueError(f"{path}: data_type: one of {', '.join(DATATYPES)} is needed")
    if min(shape, default=0) < 0 or count > LIMIT:
        raise ValueError(f"{path}: dims: sizes of at least 0 are needed, and at most {LIMIT} elements")
    data = _data(said, path, datatype, batch, folder)
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def _data(said: WarmupInput, path: str, datatype: str, batch: list[int], folder: Path | None) -> list[Any]:
    count = math.prod([*batch, *said.dims])
    if isinstance(said.input_data_file, str):
        single = _from_file(said.input_data_file, path, datatype, folder)
        rows = single * math.prod(batch)
        if len(rows) != count:
            raise ValueError(f"{path}: input_data_file: {said.input_data_file} has {len(rows)} elements, not {count}")
        return rows
    if said.random_data is True:
        return _drawn(datatype, count)
    if said.zero_data is not UNSET:
        return [_zero(datatype)] * count
    raise ValueError(f"{path}: one of zero_data, random_data and input_data_file is needed")


def _zero(datatype: str) -> Any:
    return "" if datatype == "BYTES" else False if datatype == "BOOL" else 0


def _drawn(datatype: str, count: int) -> list[Any]:
    generator = np.random.default_rng(0)
    if datatype in ("FP16", "BF16", "FP32", "FP64"):
        return list(generator.random(count, np.float32).astype(float).tolist())
    numbers = generator.integers(0, 2 if datatype == "BOOL" else 100, count)
    kind = {"BYTES": str, "BOOL": bool}.get(datatype, int)
    return [kind(number) for number in numbers.tolist()]


def _from_file(name: str, path: str, datatype: str, folder: Path | None) -> list[Any]:
    if folder is None:
        raise ValueError(f"{path}: input_data_file: there is no folder to read {name} from")
    if datatype == "BF16":
        raise ValueError(f"{path}: input_data_file: BF16 is not read from a file")
    try:
        data = files.read(folder / "warmup" / name)
        return (
            [each.decode() for each in elements(data)]
            if datatype == "BYTES"
            else list(np.frombuffer(data, payload.DATATYPES[datatype]).tolist())
        )
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise ValueError(f"{path}: input_data_file: warmup/{name} cannot be read: {said}") from None

"""A model's sample inputs: its own example where it has one that fits, else values made up from its signature.

Made up, free axes are 1 first and 4 behind, and the elements of what is large all the same; a model without a signature gets one row of four numbers. An input is V2's: a dict of
`name`, `shape`, `datatype` and a flat `data`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from prefork.payload import ModelSpec, TensorSpec

Input = dict[str, Any]

_ROW = [5.1, 3.5, 1.4, 0.2]
_MOST = 1 << 20
"""Elements above which nothing is made up."""
_VARIED = 4096
"""Elements above which they are all the same, so that a shell line can say how many instead of which."""


def inputs(spec: ModelSpec) -> list[Input]:
    """Each input that a sample has. None at all for a model whose example is no tensor, and for one that takes too much."""
    if spec.example is not None and spec.example.message:
        return []
    if _fits(spec):
        assert spec.example is not None
        return [dict(each) for each in spec.example.inputs]
    specs = required(spec)
    return [] if sum(map(_count, specs)) > _MOST else [_made_up(each) for each in specs]


def required(spec: ModelSpec) -> list[TensorSpec]:
    """The inputs that a request needs, or all where it needs none."""
    if spec.inputs is None:
        return [TensorSpec("FP64", (1, len(_ROW)), "X")]
    return [tensor for tensor in spec.inputs if not tensor.optional] or list(spec.inputs)


def count(given: list[Input]) -> int:
    """The elements of them all."""
    return sum(len(each["data"]) for each in given)


def nested(given: Input) -> Any:
    """The elements as lists in lists; of no axes, the one element."""
    found = np.empty(len(given["data"]), dtype=object)
    found[:] = given["data"]
    return found.reshape(given["shape"]).tolist()


def rows(given: list[Input]) -> list[list[Any]] | None:
    """Inputs of one value a row as the rows of a table; None where they are none."""
    lengths = {len(each["data"]) for each in given}
    is_flat = all(math.prod(each["shape"][1:]) == 1 for each in given)
    return (
        [list(row) for row in zip(*(each["data"] for each in given), strict=True)]
        if is_flat and len(lengths) == 1
        else None
    )


def _fits(spec: ModelSpec) -> bool:
    """Whether the example has the inputs that the spec names: a model's file may declare others than its code."""
    if spec.example is None or not spec.example.inputs:
        return False
    if spec.max_rows and any(each["shape"][0] > spec.max_rows for each in spec.example.inputs if each["shape"]):
        return False
    if spec.inputs is None:
        return True
    known = {each.name: each for each in spec.inputs}
    names = [each["name"] for each in spec.example.inputs]
    return all(each.optional or each.name in names for each in spec.inputs) and all(
        each["name"] in known
        and known[each["name"]].accepts(tuple(each["shape"]))
        and known[each["name"]].datatype in {"", each["datatype"]}
        for each in spec.example.inputs
    )


def _made_up(tensor: TensorSpec) -> Input:
    return {
        "name": tensor.name,
        "shape": _shape(tensor),
        "datatype": tensor.datatype or "FP64",
        "data": _elements(tensor),
    }


def _shape(tensor: TensorSpec) -> list[int]:
    if tensor.shape is None:
        return [1]
    return [size if size >= 0 else (4 if axis else 1) for axis, size in enumerate(tensor.shape)]


def _count(tensor: TensorSpec) -> int:
    return math.prod(_shape(tensor))


def _elements(tensor: TensorSpec) -> list[Any]:
    size = _count(tensor)
    return _different(tensor, 1) * size if size > _VARIED else _different(tensor, size)


def _different(tensor: TensorSpec, size: int) -> list[Any]:
    if tensor.datatype == "BOOL":
        return [at % 2 == 0 for at in range(size)]
    if tensor.datatype == "BYTES":
        return ["text"] * size
    if "INT" in tensor.datatype:
        return [at % 100 + 1 for at in range(size)]
    return [_ROW[at % len(_ROW)] for at in range(size)]

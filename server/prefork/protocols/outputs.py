"""A model's answer as V2's named outputs, whatever kind of payload it is.

Named tensors keep their names; one tensor, a text and anything that is no tensor are one output that is called after
the method (`predict`). A JSON object whose values all are tensors is named tensors; any other JSON value is its text.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from prefork.errors import BadAnswer
from prefork.payload import Kind, Payload, TensorSpec, datatype_of
from prefork.protocols import json
from prefork.protocols.tensors import Array

Nan = Literal["null", "literal"]


def named(answer: Payload, nan: Nan = "null") -> dict[str, Array]:
    """The answer's outputs by name. Raises BadAnswer for what V2 cannot carry, naming its type."""
    if answer.kind is Kind.TENSORS:
        return {name: _array(name, value) for name, value in answer.value.items()}
    if answer.kind is Kind.TENSOR:
        return _columns(answer) or {answer.method: _array(answer.method, answer.value)}
    if answer.kind in {Kind.TEXT, Kind.BYTES}:
        return {answer.method: _one(answer.value)}
    if answer.kind in {Kind.JSON, Kind.RAW}:
        return _fields(answer.value) or {answer.method: _one(json.encode(answer.value, nan=nan))}
    raise BadAnswer(f"an answer of kind {answer.kind.name} cannot be put into named outputs")


def _columns(answer: Payload) -> dict[str, Array] | None:
    """An output for each column of a table whose columns differ in type, which is no tensor."""
    table, names = answer.value, answer.names
    if not isinstance(table, np.ndarray) or table.dtype != object or table.ndim != 2:
        return None
    if names is None or len(names) != table.shape[1]:
        return None
    return _fields({str(name): table[:, at].tolist() for at, name in enumerate(names)})


def _array(name: str, value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    array = as_array(value)
    if array is None:
        raise BadAnswer(f"output '{name}' is a {type(value).__name__}, which is no tensor")
    return array


def _one(element: str | bytes) -> Array:
    array = np.empty(1, dtype=object)
    array[0] = element
    return array


def _fields(value: Any) -> dict[str, Array] | None:
    """The outputs that an object's fields are, if all of them are tensors."""
    if not isinstance(value, dict):
        return None
    found: dict[str, Array] = {}
    for name, field in value.items():
        array = as_array(field)
        if array is None or not isinstance(name, str):
            return None
        found[name] = array
    return found


def as_array(value: object) -> Array | None:
    """A JSON-like value (scalar, list, array) as a tensor; a scalar has the shape [1]. None if it is not one.

    Text becomes an object array. Text mixed with numbers, nulls, objects, integers of more than 64 bits and ragged lists
    are no tensors.
    """
    if value is None or isinstance(value, dict):
        return None
    try:
        array = np.atleast_1d(np.asarray(value))
    except (ValueError, OverflowError):
        return None
    if array.dtype.kind in "SUTO":
        return _texts(value, array)
    return array if datatype_of(array) is not None else None


def _texts(value: object, array: Array) -> Array | None:
    if not isinstance(value, np.ndarray | np.generic):
        # numpy has cut trailing NULs off and made text of numbers: look again.
        array = np.atleast_1d(np.array(value, dtype=object))
    array = array.astype(object, copy=False)
    return array if all(isinstance(element, str | bytes) for element in array.reshape(-1).tolist()) else None


def datatype(name: str, array: Array, declared: TensorSpec | None = None) -> str:
    """The V2 datatype of an output: its dtype's, or BF16 where that is declared and the array is FP32."""
    found = datatype_of(array)
    if found is None:
        raise BadAnswer(f"output '{name}' is an array of {array.dtype}, which V2 has no datatype for")
    return "BF16" if found == "FP32" and declared is not None and declared.datatype == "BF16" else found

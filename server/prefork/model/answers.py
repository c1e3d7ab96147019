"""What a user's hook returned, as a payload.

Arrays, numpy scalars, data frames, series and whatever offers `__array__` are a TENSOR; lists and tuples are one too,
of objects where numpy would change an element (ragged, text with numbers, booleans with numbers, integers beyond
64 bits). `str` is TEXT, `bytes` BYTES, a dict JSON. Everything else is a BadAnswer that names its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from prefork.errors import BadAnswer, BadRequest
from prefork.payload import Kind, Payload

Array = np.ndarray[Any, Any]

_EXACT = 2.0**53
"""Up to here every integer is a double."""


def payload(result: Any, request: Payload) -> Payload:
    """The answer that a result is; `names` are a data frame's columns, else None.

    Raises BadAnswer naming the type of a result that no answer can carry; BadRequest where that is the request's own value.
    """
    if type(result) is np.ndarray:
        return Payload(Kind.TENSOR, result, request.method)
    if isinstance(result, str):
        return Payload(Kind.TEXT, str(result), request.method)
    if isinstance(result, bytes | bytearray | memoryview):
        return Payload(Kind.BYTES, bytes(result), request.method)
    if isinstance(result, Mapping):
        return Payload(Kind.JSON, result if isinstance(result, dict) else dict(result), request.method)
    if hasattr(result, "columns") and hasattr(result, "to_numpy"):
        return Payload(Kind.TENSOR, _table(result), request.method, names=_column_names(result))
    value = tensor(result)
    if value is None:
        failure = BadRequest if result is request.value else BadAnswer
        raise failure(f"Unknown data type returned as payload (must be list or np array): {type(result).__qualname__}")
    return Payload(Kind.TENSOR, value, request.method)


def tensor(value: Any) -> Array | None:
    """An array-like value as an array; None for anything else."""
    if isinstance(value, np.ma.MaskedArray):
        return _without(np.asarray(value.data), np.ma.getmaskarray(value))
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if isinstance(value, list | tuple):
        return from_list(value)
    if hasattr(value, "to_numpy"):
        return _table(value)
    return np.asarray(value) if hasattr(value, "__array__") else None


def from_list(values: list[Any] | tuple[Any, ...]) -> Array:
    """The array that numpy makes of a list; one of objects where numpy would change an element.

    A ragged list is an array with one axis, of lists.
    """
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        return np.fromiter(values, dtype=object, count=len(values))
    if array.dtype.kind == "O" or not array.size:
        return array
    # Text as well: numpy's own cuts trailing NULs off.
    if array.dtype.kind in "US" or _is_changed(array, _leaf_kinds(values)):
        return np.array(values, dtype=object)
    return array


def _leaf_kinds(values: Any) -> set[type]:
    kinds = set(map(type, values))
    while kinds <= {list, tuple} and kinds:
        values = list(chain.from_iterable(values))
        kinds = set(map(type, values))
    return kinds


def _is_changed(array: Array, kinds: set[type]) -> bool:
    if array.dtype.kind != "b" and kinds & {bool, np.bool_}:
        return True
    if array.dtype.kind != "f" or int not in kinds:
        return False
    return kinds == {int} or not bool(np.all(np.abs(array) < _EXACT))


def _table(frame: Any) -> Array:
    """A data frame's or a series' cells; where they are objects, what is missing is None."""
    array = np.asarray(frame.to_numpy())
    if array.dtype == object and hasattr(frame, "isna"):
        return _without(array, np.asarray(frame.isna()))
    return array


def _without(array: Array, missing: Array) -> Array:
    found = array.astype(object)
    found[missing] = None
    return found


def _column_names(frame: Any) -> list[Any] | None:
    columns = frame.columns
    names = columns.tolist() if hasattr(columns, "tolist") else list(columns)
    return None if names == list(range(len(names))) else names

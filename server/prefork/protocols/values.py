"""JSON values without datatypes to arrays, and arrays to JSON values, as TF-Serving's REST API maps them.

A number is int64 (uint64 where it must be) or float64, `null` among numbers is NaN, text is text, and
`{"b64": "..."}` is bytes. Nested lists are one array: ragged ones are a BadRequest that names the field.
Format: https://www.tensorflow.org/tfx/serving/api_rest#json_mapping
"""

from __future__ import annotations

import base64
import binascii
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefork.errors import BadAnswer, BadRequest
from prefork.payload import Kind, Payload

Array = NDArray[Any]

_NUMBERS = {int, float, bool}
_AXES = 32
_WIDE = 1 << 24
"""Characters that an array of numpy's text may have room for."""


def to_array(value: Any, field: str) -> Array:
    """One JSON value, bare or in nested lists, as one array.

    Numbers are numeric, text alone is `str_` (`str` objects where that would change it or take far more memory), anything
    with bytes in it is an object array of `bytes`; numbers beside text are an object array of the values as they are.
    Raises BadRequest naming the field.
    """
    if isinstance(value, np.ndarray):
        return value
    shape, leaves = _flatten(value, field)
    kinds = set(map(type, leaves))
    if kinds == {int}:
        return _integers(leaves, field).reshape(shape)
    if kinds <= _NUMBERS:
        return _numbers(leaves, field).reshape(shape)
    if kinds <= {int, float, type(None)} and kinds != {type(None)}:
        return _numbers([np.nan if leaf is None else leaf for leaf in leaves], field).reshape(shape)
    return _objects(leaves, kinds, field).reshape(shape)


def to_bytes(array: Array, field: str) -> Array:
    """Text as `bytes` in an object array, numbers as they are. Raises BadRequest for text beside other values."""
    if array.dtype.kind not in "UO":
        return array
    leaves = (_encoded(item, field) for item in array.ravel().tolist())
    return np.fromiter(leaves, dtype=object, count=array.size).reshape(array.shape)


def _encoded(item: Any, field: str) -> bytes:
    if isinstance(item, bytes):
        return item
    if not isinstance(item, str):
        raise BadRequest(f"'{field}' has text beside {'null' if item is None else 'other values'}")
    return item.encode()


def readable(array: Any, name: str = "") -> Any:
    """The array for `json.encode`: bytes as UTF-8 text or `{"b64": ...}`; always b64 where the name ends in `_bytes`.

    A list, which is what an answer's tensor is where numpy would change an element, stays one.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "SUO":
        return array
    binary = name.endswith("_bytes")
    leaves = (_leaf(item, binary=binary) for item in array.ravel().tolist())
    return np.fromiter(leaves, dtype=object, count=array.size).reshape(array.shape).tolist()


def answered(answer: Payload) -> Any:
    """An answer that is no named tensor, for `json.encode`. Raises BadAnswer for what only Seldon can carry."""
    if answer.kind is Kind.TENSOR:
        return readable(answer.value)
    if answer.kind in {Kind.JSON, Kind.RAW, Kind.TEXT}:
        return answer.value
    if answer.kind is Kind.BYTES:
        return _leaf(bytes(answer.value), binary=False)
    raise BadAnswer(f"this protocol cannot carry an answer of kind {answer.kind.name}")


def _flatten(value: Any, field: str) -> tuple[list[int], list[Any]]:
    """The shape of nested lists and their leaves in row-major order."""
    shape: list[int] = []
    level = [value]
    while level and isinstance(level[0], list):
        if len(shape) == _AXES:
            raise BadRequest(f"'{field}' is nested deeper than {_AXES} lists")
        shape.append(len(level[0]))
        for item in level:
            if not isinstance(item, list) or len(item) != shape[-1]:
                raise _ragged(field)
        level = list(chain.from_iterable(level))
    return shape, level


def _integers(leaves: list[int], field: str) -> Array:
    """int64, else uint64: numpy alone makes rounded floats of a list that has both large and small ones."""
    for dtype in (np.int64, np.uint64):
        try:
            return np.array(leaves, dtype=dtype)
        except OverflowError:
            continue
    raise BadRequest(f"'{field}' has integers that neither int64 nor uint64 holds")


def _numbers(leaves: list[Any], field: str) -> Array:
    found = np.array(leaves)
    if found.dtype == object:
        raise BadRequest(f"'{field}' has an integer of more than 64 bits")
    return found


def _objects(leaves: list[Any], kinds: set[type], field: str) -> Array:
    if list in kinds:
        raise _ragged(field)
    if kinds == {type(None)}:
        raise BadRequest(f"'{field}' is null")
    if kinds == {str} and _suits_numpy(leaves):
        return np.array(leaves, dtype=np.str_)
    if dict in kinds:
        leaves = [_binary(leaf, field) for leaf in leaves]
    return np.fromiter(leaves, dtype=object, count=len(leaves))


def _suits_numpy(texts: list[str]) -> bool:
    """Whether numpy's text keeps them: it cuts trailing NULs off and gives each the room of the longest."""
    return max(map(len, texts)) * len(texts) <= _WIDE and not any(text.endswith("\0") for text in texts)


def _ragged(field: str) -> BadRequest:
    return BadRequest(f"'{field}' is ragged: its lists must have one length on each axis")


def _binary(leaf: Any, field: str) -> bytes:
    """The bytes of a leaf among which one, at least, is an object."""
    if isinstance(leaf, str):
        return leaf.encode()
    text = leaf.get("b64") if isinstance(leaf, dict) and len(leaf) == 1 else None
    if not isinstance(text, str):
        raise BadRequest(f"'{field}' has an element that is neither text nor an object of b64 alone, beside such ones")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"'{field}' has an element whose b64 is not base64") from None


def _leaf(item: Any, *, binary: bool) -> Any:
    if isinstance(item, str) and binary:
        item = item.encode()
    if not isinstance(item, bytes):
        return item
    if not binary:
        try:
            return item.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(item).decode()}

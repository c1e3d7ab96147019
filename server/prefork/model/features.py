"""A request as Seldon's `X` and the names of its columns, whatever protocol it came by."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefork.errors import BadRequest
from prefork.payload import Kind, Payload

Array = np.ndarray[Any, Any]

_QUOTED = 1000


def features(request: Payload) -> tuple[Any, list[Any]]:
    """X and its names: an array with its columns' names, else a JSON value, text or bytes without names.

    One named tensor is X; several of one length, each of shape [n] or [n,1], are its columns.
    Raises BadRequest for a message without data, and for named tensors that do not make columns.
    """
    kind = request.kind
    if kind is Kind.TENSOR:
        return request.value, request.names if request.names is not None else []
    if kind in {Kind.JSON, Kind.TEXT, Kind.BYTES}:
        return request.value, []
    if kind is Kind.TENSORS:
        return _columns(request.value)
    raise BadRequest(f"Invalid request data type: {repr(request.value)[:_QUOTED]}")


def text(array: Array) -> Array:
    """An object array of `bytes` as one of `str`; any other array, and bytes that are not UTF-8, as they are."""
    if array.dtype.kind not in "OS":
        return array
    try:
        found = [element.decode() if isinstance(element, bytes) else element for element in array.ravel().tolist()]
    except UnicodeDecodeError:
        return array
    return np.fromiter(found, dtype=object, count=len(found)).reshape(array.shape)


def _columns(tensors: dict[str, Array]) -> tuple[Array, list[Any]]:
    arrays = [text(array) for array in tensors.values()]
    if len(arrays) == 1:
        return arrays[0], []
    shapes = {(*array.shape[:1], *(size for size in array.shape[1:] if size != 1)) for array in arrays}
    if len(shapes) != 1 or any(array.ndim not in {1, 2} for array in arrays) or len(next(iter(shapes))) != 1:
        said = ", ".join(f"{name} {list(array.shape)}" for name, array in tensors.items())
        raise BadRequest(f"the inputs do not make the columns of one X, each must be [n] or [n,1]: {said or 'none'}")
    return np.column_stack(arrays), list(tensors)

"""The commonest payloads: arrays, and beside them nothing that differs from one request to the next.

What a frame says of such a payload is made once for each shape and looked up from then on, by either side: that is four fifths
of what a small one costs. What is remembered is bounded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prefork.frames.layout import BadFrame, Buffer
from prefork.payload import Kind, NoMeta, Payload

_MOST = 512
"""Shapes that are remembered; then all are forgotten, and learnt again."""

_LONGEST = 1024
"""Bytes of what a frame says of a payload."""

Place = tuple[np.dtype[Any], list[int], int]
"""Of an array in the buffers: dtype, shape, and where it begins."""

_ndarray = np.ndarray
_made: dict[Any, bytes] = {}
_learnt: dict[bytes, _Plain] = {}


class _Plain(NamedTuple):
    """A payload without the contents of its arrays. keys: theirs in a dict; None for one array."""

    kind: Kind
    method: str
    names: tuple[str, ...] | None
    has_meta: bool
    has_parameters: bool
    keys: tuple[str, ...] | None
    places: list[Place]


def key(payload: Payload, *, whole: bool) -> Any:
    """By what a plain payload is remembered; None for one that is not plain. whole: whether its message goes with it."""
    meta: Any = payload.meta
    parameters, names = payload.parameters, payload.names
    if meta or parameters or payload.tags is not None or payload.metrics is not None:
        return None
    arrays = _arrays(payload)
    if arrays is None or (whole and payload.message is not None):
        return None
    if names is not None:
        if not all(type(each) is str for each in names):
            return None
        names = tuple(names)  # type: ignore[assignment]
    return payload.kind, payload.method, names, meta is None or type(meta) is NoMeta, parameters is None, arrays


def known(key: Any) -> bytes | None:
    """What a frame says of payloads of that key."""
    return _made.get(key)


def remember(key: Any, packed: bytes) -> None:
    """What a frame says of payloads of that key."""
    if len(packed) <= _LONGEST:
        _bound(_made)
        _made[key] = packed


def read(packed: Buffer, buffers: memoryview) -> Payload | None:
    """The payload of which a frame says that; None for one that has to be read. Raises BadFrame."""
    found = _learnt.get(packed) if type(packed) is bytes else None
    if found is None:
        return None
    kind, method, names, has_meta, has_parameters, keys, places = found
    try:
        arrays = [_ndarray(shape, dtype, buffers, at) for dtype, shape, at in places]
    except TypeError as error:
        raise BadFrame(f"the arrays are not in the buffers: {error}") from None
    return Payload(
        kind,
        arrays[0] if keys is None else dict(zip(keys, arrays, strict=True)),
        method,
        None if names is None else list(names),
        {} if has_meta else None,
        {} if has_parameters else None,
    )


def learn(packed: Buffer, payload: Payload, places: list[Place]) -> None:
    """Remember a payload that was read, if it is plain. places: of all arrays that were read for it."""
    if type(packed) is not bytes or len(packed) > _LONGEST or key(payload, whole=True) is None:
        return
    keys = None if payload.kind is Kind.TENSOR else tuple(payload.value)
    if len(places) != (1 if keys is None else len(keys)) or any(0 in shape for _, shape, _ in places):
        return
    names = None if payload.names is None else tuple(payload.names)
    _bound(_learnt)
    has_meta, has_parameters = payload.meta is not None, payload.parameters is not None
    _learnt[packed] = _Plain(payload.kind, payload.method, names, has_meta, has_parameters, keys, places)


def _arrays(payload: Payload) -> Any:
    """The dtypes and shapes of a payload that is made of arrays of numbers, text or times only."""
    value = payload.value
    if type(value) is _ndarray and payload.kind is Kind.TENSOR:
        dtype = value.dtype
        return None if dtype.hasobject else (dtype, value.shape)
    if type(value) is not dict or payload.kind is not Kind.TENSORS:
        return None
    found = []
    for name, each in value.items():
        if type(each) is not _ndarray or type(name) is not str or each.dtype.hasobject:
            return None
        found.append((name, each.dtype, each.shape))
    return tuple(found)


def _bound(kept: dict[Any, Any]) -> None:
    if len(kept) >= _MOST:
        kept.clear()

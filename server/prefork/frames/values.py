"""Any value of a payload as msgpack, with its arrays beside it as raw buffers. Never pickle.

Extension types of the msgpack; what they hold is msgpack again:

    1  array of numbers, text or times: [dtype, shape, place, bytes], the place being that of its bytes among the buffers
    2  array of objects: [shape, place, bytes]; there its elements stand as one msgpack list
    3  numpy scalar: [dtype, bytes]
    4  whole number beyond 64 bits: its decimal text
    5  time, date, UUID or range: [which, text]
    6  member of an enum: its value
    7  text that is no UTF-8: its bytes, surrogates as they are
    8  dict with a key that is one of these: a list of its pairs
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from prefork.errors import BadAnswer
from prefork.frames import foreign
from prefork.frames.layout import BadFrame, padded

_ARRAY, _OBJECTS, _SCALAR, _BIG, _NAMED_TEXT, _ENUM, _TEXT, _PAIRS = range(1, 9)
_PLAIN = re.compile(r"[<>|=]?(?:[biufcSU]\d{1,10}|\?|[mM]8(?:\[[\w/]{1,20}\])?)")
_NAMED = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
"""Dtypes of extensions of numpy's, which are there once the extension is imported."""
_FLAT = frozenset({str, bytes, int, float, bool, type(None)})
_KEY = {str}
_COPIED = 4096
"""Bytes up to which an array is copied: that is cheaper than to look at its layout."""
_MOST_DIGITS = 4300
"""Python's own limit of what becomes a number, which keeps the time bounded."""

Buffer = bytes | memoryview
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_Ext = msgspec.msgpack.Ext


class Writer:
    """One value's head and buffers."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._at = 0

    def value(self, value: Any) -> Any:
        """The value made of nothing but what msgpack has; its arrays are added to the buffers.

        Raises BadAnswer naming a type that cannot cross.
        """
        try:
            return self._plain(value)
        except RecursionError:
            raise BadAnswer("the answer cannot be written as JSON: it nests too deep, or holds itself") from None

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind in _FLAT:
            return value
        if kind is dict:
            return self._dict(value)
        if kind is list or kind is tuple:
            return value if set(map(type, value)) <= _FLAT else [self._plain(each) for each in value]
        if kind is np.ndarray:
            return self._array(value)
        return self._foreign(value)

    def _dict(self, value: dict[Any, Any]) -> Any:
        if set(map(type, value)) <= _KEY:
            if set(map(type, value.values())) <= _FLAT:
                return value
            return {key: self._plain(each) for key, each in value.items()}
        return _mapped([(self._foreign_key(key), self._plain(each)) for key, each in value.items()])

    def _foreign_key(self, key: Any) -> Any:
        found = foreign.plainer_key(key)
        return found if type(found) in _FLAT else self._foreign(found)

    def _foreign(self, value: Any) -> Any:
        if isinstance(value, enum.Enum) and not isinstance(value, str | int | float):
            return _Ext(_ENUM, encoded(self._plain(value.value)))
        if isinstance(value, np.ndarray):
            return self._array(np.asarray(value))
        if isinstance(value, np.generic) and not isinstance(value, np.str_):
            return self._scalar(value)
        if foreign.is_missing(value):
            return None
        text = foreign.as_text(value)
        return self._plain(foreign.plainer(value)) if text is None else _Ext(_NAMED_TEXT, encoded(text))

    def _scalar(self, value: np.generic) -> Any:
        if _name(value.dtype) is None:
            raise foreign.refused(value)
        return _Ext(_SCALAR, _encode((_name(value.dtype), value.tobytes())))

    def _array(self, array: np.ndarray[Any, Any]) -> Any:
        name = _name(array.dtype)
        if name is None:
            return self._objects(array)
        data = raw(array)
        return _Ext(_ARRAY, _encode((name, array.shape, self._add(data), len(data))))

    def _objects(self, array: np.ndarray[Any, Any]) -> Any:
        if array.dtype != object:
            raise BadAnswer(f"the answer holds an array of {array.dtype}, which JSON has no form for")
        data = encoded(self._plain(array.reshape(-1).tolist()))
        return _Ext(_OBJECTS, _encode((array.shape, self._add(data), len(data))))

    def _add(self, data: Buffer) -> int:
        at = self._at
        self.buffers.append(data)
        self._at += padded(len(data))
        return at


def raw(array: np.ndarray[Any, Any]) -> Buffer:
    """The bytes of an array without objects, in C order."""
    if array.nbytes <= _COPIED:
        return array.tobytes()
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)


def encoded(value: Any) -> bytes:
    """The msgpack of what a Writer has made. Raises BadAnswer."""
    try:
        return _encode(value)
    except (OverflowError, UnicodeEncodeError):
        return _encode(_boxed(value))
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError) as error:
        raise BadAnswer(f"the answer cannot be sent: {error}") from None


class Reader:
    """Values out of a head and the buffers beside it; arrays are views of those. Raises BadFrame, and nothing else.

    places: dtype, shape and beginning of each array that was read, but for those of objects.
    """

    def __init__(self, buffers: memoryview) -> None:
        self._buffers = buffers
        self.places: list[tuple[np.dtype[Any], list[int], int]] = []
        self._seen: set[int] = set()

    def value(self, head: Buffer) -> Any:
        """What `Writer.value` was given."""
        try:
            return msgspec.msgpack.decode(head, ext_hook=self._special)
        except BadFrame:
            raise
        except Exception as error:  # noqa: BLE001 - there are many ways for bytes to be no value
            raise BadFrame(f"the frame holds no value: {type(error).__name__}: {error}") from None

    def _special(self, code: int, data: memoryview) -> Any:
        read = _READ.get(code)
        if read is None:
            raise BadFrame(f"the extension {code} is not known")
        return read(self, data)

    def _array(self, data: memoryview) -> np.ndarray[Any, Any]:
        name, shape, at, size = _decode(data)
        dtype = _dtype(name)
        if _count(shape) * dtype.itemsize != size:
            raise BadFrame(f"an array of shape {str(shape)[:80]} and dtype {dtype} is no {size} bytes")
        part = self._part(at, size)
        self.places.append((dtype, shape, at))
        if not size:
            return np.empty(shape, dtype)
        return np.frombuffer(part, dtype).reshape(shape)

    def _objects(self, data: memoryview) -> np.ndarray[Any, Any]:
        shape, at, size = _decode(data)
        part = self._part(at, size)
        if at in self._seen:  # each is read once, or a few bytes could stand for any number of them
            raise BadFrame("two arrays are in one place")
        self._seen.add(at)
        items = self.value(part)
        if not isinstance(items, list) or len(items) != _count(shape):
            raise BadFrame(f"an array of shape {str(shape)[:80]} has other elements")
        return np.fromiter(items, object, len(items)).reshape(shape)

    def _enum(self, data: memoryview) -> enum.Enum:
        return foreign.enumerated(self.value(data))

    def _pairs(self, data: memoryview) -> dict[Any, Any]:
        return dict(self.value(data))

    def _part(self, at: int, size: int) -> memoryview:
        if at < 0 or size < 0 or at + size > self._buffers.nbytes:
            raise BadFrame(f"{size} bytes at {at} are not in the buffers")
        return self._buffers[at : at + size]


def _boxed(value: Any) -> Any:
    """The value with what msgpack has no room for in extensions: long numbers, and text that is no UTF-8."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return _Ext(_BIG, str(value).encode())
    if isinstance(value, str) and not value.isascii():
        raw = value.encode("utf-8", "surrogatepass")
        return value if raw.decode(errors="ignore") == value else _Ext(_TEXT, raw)
    if isinstance(value, dict):
        return _mapped([(_boxed(key), _boxed(each)) for key, each in value.items()])
    return [_boxed(each) for each in value] if isinstance(value, list | tuple) else value


def _mapped(pairs: list[tuple[Any, Any]]) -> Any:
    """A dict of the pairs; msgspec has none with extensions for keys."""
    if any(type(key) is _Ext for key, _ in pairs):
        return _Ext(_PAIRS, encoded(pairs))
    return dict(pairs)


def _named_text(_reader: Reader, data: memoryview) -> Any:
    return foreign.from_text(*_decode(data))


def _text(_reader: Reader, data: memoryview) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")


def _big(_reader: Reader, data: memoryview) -> int:
    digits = bytes(data)
    if len(digits) > _MOST_DIGITS:
        raise BadFrame("a number of so many digits is refused")
    return int(digits)


def _scalar(_reader: Reader, data: memoryview) -> Any:
    name, raw = _decode(data)
    dtype = _dtype(name)
    if len(raw) != dtype.itemsize:
        raise BadFrame(f"{len(raw)} bytes are no {dtype}")
    return np.frombuffer(raw, dtype)[0] if raw else dtype.type()


@lru_cache(maxsize=256)
def _name(dtype: np.dtype[Any]) -> str | None:
    """How a dtype is called in a frame; None for one that has no name there."""
    if dtype.name in _NAMED:
        return dtype.name
    return dtype.str if not dtype.hasobject and _PLAIN.fullmatch(dtype.str) else None


@lru_cache(maxsize=256)
def _dtype(name: str) -> np.dtype[Any]:
    if not isinstance(name, str) or (name not in _NAMED and not _PLAIN.fullmatch(name)):
        raise BadFrame(f"the dtype {str(name)[:40]!r} is not known")
    return np.dtype(name)


def _count(shape: list[int]) -> int:
    if len(shape) > 32 or not all(isinstance(each, int) and each >= 0 for each in shape):
        raise BadFrame(f"{str(shape)[:80]} is no shape")
    count = 1
    for each in shape:
        count *= each
    return count


_READ: dict[int, Callable[[Reader, memoryview], Any]] = {
    _ARRAY: Reader._array,  # noqa: SLF001 - its own module
    _OBJECTS: Reader._objects,  # noqa: SLF001
    _ENUM: Reader._enum,  # noqa: SLF001
    _PAIRS: Reader._pairs,  # noqa: SLF001
    _SCALAR: _scalar,
    _BIG: _big,
    _NAMED_TEXT: _named_text,
    _TEXT: _text,
}

"""A tensor's elements, between numpy and V2's two notations: JSON values and binary data.

Reading is strict: an element of another type, one that its datatype cannot hold and a count that is not the shape's
are a BadRequest that names the input. Binary data is read in place: arrays are views on the request. Writing copies
only what has another byte order or is not contiguous.

Binary data is row-major and little-endian; a BOOL is one byte; each BYTES element is its length and itself:

    | u32 length | length bytes | u32 length | length bytes | ...

A BF16 is the upper half of an FP32. It has no numpy dtype, so models see FP32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from prefork.errors import BadAnswer, BadRequest
from prefork.http import Buffer
from prefork.payload import DATATYPES

Array = np.ndarray[Any, Any]

RANK = 32
"""The most axes that a shape may have: what every supported numpy can hold."""

_FLOATS = {name: float(np.finfo(DATATYPES[name]).max) for name in ("FP16", "FP32", "FP64")}
_INTEGERS = {
    name: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for name, dtype in DATATYPES.items()
    if dtype.kind in "iu"
}
SIZES = {name: dtype.itemsize for name, dtype in DATATYPES.items() if name != "BYTES"} | {"BF16": 2}
_UINT16, _UINT32, _FP32 = np.dtype("<u2"), np.dtype("<u4"), np.dtype("<f4")
_NUMBERS = {int, float}
_FEW = 64
"""Up to about that many elements Python's numbers are written faster than an array is."""
_LENGTH = struct.Struct("<I")
_JSON_NAMES = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    type(None): "null",
    dict: "an object",
}


def is_datatype(name: str) -> bool:
    """Whether V2 has that datatype."""
    return name in DATATYPES or name == "BF16"


def text(shape: Iterable[int]) -> str:
    """A shape as messages show it: `[-1,4]`."""
    return f"[{','.join(map(str, shape))}]"


def element_count(name: str, shape: Sequence[int]) -> int:
    """The number of elements of a shape without negative axes.

    Raises BadRequest when it, or the shape that numpy would have to hold, is out of bounds.
    """
    count = math.prod(shape)
    if len(shape) > RANK or (count >> 60) or (not count and math.prod(filter(None, shape)) >> 60):
        raise BadRequest(f"shape {text(shape)} of input '{name}' is too large")
    return count


def solve(shape: Sequence[int], count: int) -> list[int]:
    """A shape's variable axes (-1) for an array of `count` elements: the innermost takes what there is, others are 1.

    A count that does not divide is rounded down: the caller finds that the sizes differ.
    """
    solved = [1 if axis < 0 else axis for axis in shape]
    if -1 in shape:
        innermost = len(shape) - 1 - list(shape)[::-1].index(-1)
        solved[innermost] = count // max(1, math.prod(solved))
    return solved


# JSON


def from_json(name: str, datatype: str, shape: Sequence[int], data: object) -> Array:
    """The array of an input's JSON elements: a list, flat or nested (the nesting means nothing), or a flat number array.

    FP16 is rounded from the double, BF16 is an FP32 array.
    """
    count = element_count(name, shape)
    array = flat(name, datatype, data)
    if array.size != count:
        raise BadRequest(
            f"Unable to parse 'data' of input '{name}': Shape does not match true shape of 'data' field: "
            f"{text(shape)} has {count} elements, 'data' has {array.size}"
        )
    return array.reshape(shape)


def flat(name: str, datatype: str, data: object) -> Array:
    """`from_json` without a shape: one axis, as long as there are elements."""
    if type(data) is list:
        return _from_list(name, datatype, data)
    if isinstance(data, np.ndarray):
        return _from_array(name, datatype, data)
    raise BadRequest(f"Unable to parse 'data' of input '{name}': attempt to access JSON non-array as array")


def _from_list(name: str, datatype: str, data: list[Any]) -> Array:
    kinds = set(map(type, data))
    while list in kinds:
        data = list(chain.from_iterable(data) if len(kinds) == 1 else _leaves(data))
        kinds = set(map(type, data))
    if datatype in _INTEGERS:
        return _integers(name, datatype, data, kinds)
    if datatype == "BOOL":
        _check_kinds(name, data, kinds - {bool}, "BOOL takes true and false")
        return np.array(data, DATATYPES["BOOL"])
    if datatype == "BYTES":
        _check_kinds(name, data, kinds - {str}, "BYTES takes strings")
        return object_array([_utf8(name, element) for element in data])
    return _numbers(name, datatype, data, kinds)


def _leaves(data: list[Any]) -> Iterator[Any]:
    stack = [iter(data)]
    while stack:
        for item in stack[-1]:
            if type(item) is list:
                stack.append(iter(item))
                break
            yield item
        else:
            stack.pop()


def _integers(name: str, datatype: str, data: list[Any], kinds: set[type]) -> Array:
    if kinds != {int}:
        _check_kinds(name, data, kinds - {int}, f"{datatype} takes integers")
        return np.empty(0, DATATYPES[datatype])
    low, high = _INTEGERS[datatype]
    if min(data) < low or max(data) > high:
        raise _out_of_range(name, datatype, next(i for i, n in enumerate(data) if not low <= n <= high), data)
    return np.array(data, DATATYPES[datatype])


def _numbers(name: str, datatype: str, data: list[Any], kinds: set[type]) -> Array:
    if not kinds <= _NUMBERS:
        _check_kinds(name, data, kinds - _NUMBERS, f"{datatype} takes numbers")
    datatype = "FP32" if datatype == "BF16" else datatype
    try:
        # The root of the sum of squares bounds every element, and costs a fraction of looking at each.
        if math.hypot(*data) <= _FLOATS[datatype]:
            return np.array(data, DATATYPES[datatype])
        return _narrow(name, datatype, np.array(data, DATATYPES["FP64"]))
    except OverflowError:
        index = next(i for i, n in enumerate(data) if type(n) is int and abs(n) > _FLOATS["FP64"])
        raise _out_of_range(name, datatype, index, data) from None


def _narrow(name: str, datatype: str, wide: Array) -> Array:
    """Doubles as `datatype`, where infinities and NaN stay, and nothing else becomes one."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        array: Array = wide.astype(DATATYPES[datatype], copy=False)
    if array is not wide:
        lost = np.isinf(array) & ~np.isinf(wide)
        if lost.any():
            raise _out_of_range(name, datatype, int(lost.argmax()), wide)
    return array


def _from_array(name: str, datatype: str, data: Array) -> Array:
    if datatype in _INTEGERS and data.dtype.kind in "iu":
        return _from_integers(name, datatype, data)
    if datatype in _FLOATS or datatype == "BF16":
        return _narrow(name, "FP32" if datatype == "BF16" else datatype, data)
    takes = "strings" if datatype == "BYTES" else "true and false" if datatype == "BOOL" else "integers"
    raise BadRequest(
        f"Unable to parse 'data' of input '{name}': {datatype} takes {takes}, not {data.dtype.name} numbers"
    )


def _from_integers(name: str, datatype: str, data: Array) -> Array:
    low, high = _INTEGERS[datatype]
    if data.size and not (low <= int(data.min()) and int(data.max()) <= high):
        inside = [low <= n <= high for n in data.tolist()]
        raise _out_of_range(name, datatype, inside.index(False), data)
    return data.astype(DATATYPES[datatype], copy=False)


def _check_kinds(name: str, data: list[Any], wrong: set[type], rule: str) -> None:
    if wrong:
        index = next(i for i, element in enumerate(data) if type(element) in wrong)
        kind = _JSON_NAMES.get(type(data[index]), type(data[index]).__name__)
        raise BadRequest(f"Unable to parse 'data' of input '{name}': element {index} is {kind}; {rule}")


def _out_of_range(name: str, datatype: str, index: int, data: Sequence[Any] | Array) -> BadRequest:
    return BadRequest(
        f"Unable to parse 'data' of input '{name}': element {index}, {data[index]!s:.40}, is out of range for {datatype}"
    )


def _utf8(name: str, element: str) -> bytes:
    try:
        return element.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"Unable to parse 'data' of input '{name}': a string holds half of a surrogate pair") from None


def to_json(name: str, array: Array, datatype: str) -> Array | list[Any]:
    """An output's elements as what JSON takes: a flat array or list of integers, booleans, doubles or strings.

    FP16, FP32 and BF16 widen to the doubles that they are. Raises BadRequest for BYTES that are not UTF-8: their client
    has to ask for binary data.
    """
    if datatype == "BYTES":
        return [_decoded(name, element) for element in byte_elements(name, array)]
    if array.size <= _FEW:
        few: list[Any] = array.reshape(-1).tolist()
        return few
    if datatype in ("FP32", "FP16", "BF16"):
        # Widening a signalling NaN is an invalid operation to the processor.
        with np.errstate(invalid="ignore"):
            return array.reshape(-1).astype(DATATYPES["FP64"])
    return np.ascontiguousarray(array, DATATYPES[datatype]).reshape(-1)


def _decoded(name: str, element: bytes) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError:
        raise BadRequest(
            f"sending BYTES that are not UTF-8 via JSON is not supported. Please use the binary data format for output {name}"
        ) from None


# Binary data


def from_binary(name: str, datatype: str, shape: Sequence[int], data: memoryview, model: str) -> Array:
    """The array over an input's binary data, in place where the data is aligned for its datatype; BYTES are copied out."""
    count = element_count(name, shape)
    if datatype == "BYTES":
        return object_array(_read_strings(name, data, count)).reshape(shape)
    if len(data) != count * SIZES[datatype]:
        raise BadRequest(
            f"input byte size mismatch for input '{name}' for model '{model}'. "
            f"Expected {count * SIZES[datatype]}, got {len(data)}"
        )
    array = np.frombuffer(data, _UINT16 if datatype == "BF16" else DATATYPES[datatype])
    if datatype == "BF16":
        array = widen_bfloat16(array)
    elif datatype == "BOOL":
        _check_booleans(name, data)
    elif not array.flags.aligned:
        array = array.copy()
    return array.reshape(shape)


def _check_booleans(name: str, data: memoryview) -> None:
    octets = np.frombuffer(data, np.uint8)
    if octets.size and octets.max() > 1:
        index = int((octets > 1).argmax())
        raise BadRequest(f"element {index} of BOOL input '{name}' is the byte {octets[index]}, neither 0 nor 1")


def _read_strings(name: str, data: memoryview, count: int) -> list[bytes]:
    octets, at, elements = bytes(data), 0, []
    while at < len(octets):
        if len(octets) - at < 4:
            raise BadRequest(f"incomplete string length indicator for inference input '{name}', expecting 4 bytes")
        (length,) = _LENGTH.unpack_from(octets, at)
        at += 4
        if length > len(octets) - at:
            raise BadRequest(
                f"incomplete string data for inference input '{name}', expecting string of length {length} "
                f"but only {len(octets) - at} bytes available"
            )
        elements.append(octets[at : at + length])
        at += length
    if len(elements) != count:
        raise BadRequest(
            f"unexpected number of string elements {len(elements)} for inference input '{name}', expecting {count}"
        )
    return elements


def to_binary(name: str, array: Array, datatype: str) -> Buffer:
    """An output's binary data: the array's own memory, unless it is BYTES, has to be rounded to BF16 or to be moved."""
    if datatype == "BYTES":
        return b"".join([part for e in byte_elements(name, array) for part in (_LENGTH.pack(len(e)), e)])
    array = narrow_bfloat16(array) if datatype == "BF16" else np.ascontiguousarray(array, DATATYPES[datatype])
    return array.reshape(-1).view(np.uint8).data


def widen_bfloat16(halves: Array) -> Array:
    """FP32 of BF16's 16 bits (any shape of uint16); exact."""
    wide = halves.astype(_UINT32)
    wide <<= 16
    return wide.view(_FP32)


def narrow_bfloat16(array: Array) -> Array:
    """BF16's 16 bits as uint16, rounded to the nearest, ties to even; NaN stays NaN. Takes float32 or `bfloat16`."""
    if array.dtype.itemsize == 2:
        return np.ascontiguousarray(array).view(_UINT16)
    bits = np.ascontiguousarray(array, _FP32).view(_UINT32)
    halves = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(_UINT16)
    # A NaN's bits would round away to infinity; the quiet bit keeps it one.
    return np.where(np.isnan(array), ((bits >> 16) | 0x40).astype(_UINT16), halves)


def byte_elements(name: str, array: Array) -> list[bytes]:
    """The elements of a BYTES tensor (an object, S or U array), text as UTF-8; BadAnswer for any other element."""
    return [_as_bytes(name, element) for element in array.reshape(-1).tolist()]


def _as_bytes(name: str, element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        try:
            return element.encode()
        except UnicodeEncodeError:
            raise BadAnswer(f"output '{name}' holds half of a surrogate pair, which UTF-8 cannot say") from None
    if isinstance(element, bytearray | memoryview):
        return bytes(element)
    raise BadAnswer(f"output '{name}' holds a {type(element).__name__}; a tensor of objects takes str and bytes only")


def object_array(elements: list[bytes]) -> Array:
    """A one-dimensional BYTES tensor."""
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array

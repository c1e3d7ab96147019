"""JSON bodies to typed structs and back: exact, bounded, and fast where arrays of numbers are long.

`Wire` decodes. A short body goes through msgspec's typed decoder in one call; in a longer one the arrays that the
protocol expects become numpy arrays without Python numbers in between. `encode` writes answers, numpy values
anywhere in them. `NaN`, `Infinity` and integers of any size are taken, as Python's own json does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec
import orjson

from prefork.errors import BadRequest
from prefork.protocols import numbers, plain
from prefork.protocols.depth import check_depth
from prefork.protocols.numbers import ARRAY, ARRAY_FLAT, Nesting, Spec, as_array

__all__ = ["ARRAY", "ARRAY_FLAT", "Wire", "as_array", "encode"]

T = TypeVar("T")
Nan = Literal["null", "literal"]
Expected = Nesting | None | Mapping[str, "Expected"] | Sequence["Expected"]
"""A `Spec` as protocols write it: `[x]` for `{"*": x}` and None for ARRAY."""

MAX_DEPTH = 100
_SHORT = 2048
"""Bytes up to which msgspec and `np.array` are faster than simdjson's walk."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_DECLINED = object()


class Wire(Generic[T]):
    """The JSON form of a type: `decode` makes one out of a body.

    arrays: where in the value lists of numbers are expected: the same nesting of objects and lists, with ARRAY (lists in
    lists are a shape), or ARRAY_FLAT (the numbers count in row-major order, however nested), in the place of the
    array. The type has to say Any there: a long body gives a writable numpy array of int64, uint64 or float64, a short
    one, or a list that numpy has no number array for, plain lists. `as_array` makes the same array of these.
    complaint: how the message begins for a body that is no JSON.
    """

    def __init__(
        self, kind: type[T] | Any, arrays: Expected = None, *, complaint: str = "the body is not JSON"
    ) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)
        self._spec = None if arrays is None else _spec(arrays)
        self._complaint = complaint

    def decode(self, body: bytes | str, max_depth: int = MAX_DEPTH) -> T:
        """The body's value. Of two equal keys the last counts.

        Raises BadRequest with the field (`... - at `$.data.names``), or the byte, that is wrong.
        """
        if type(body) is not bytes:
            body = self._utf8(body) if isinstance(body, str) else bytes(body)
        if self._spec is not None and len(body) > _SHORT:
            value = _read(body, self._spec, max_depth)
            if value is not _DECLINED:
                return self.convert(value)
        check_depth(body, max_depth)
        if not body.isascii():
            self._check_utf8(body)
        try:
            return self._decoder.decode(body)  # type: ignore[no-any-return]
        except msgspec.DecodeError as error:
            problem = error
        except RecursionError:
            raise BadRequest("the JSON nests too deep") from None
        return self._lenient(body, problem)

    def convert(self, value: Any) -> T:
        """The type made of plain Python. Raises BadRequest that names the field."""
        try:
            return msgspec.convert(value, self._kind)
        except msgspec.ValidationError as error:
            raise BadRequest(str(error)) from None

    def _lenient(self, body: bytes, problem: msgspec.DecodeError) -> T:
        """What Python's json takes and strict parsers do not: NaN, Infinity and numbers beyond float64."""
        if not (b"NaN" in body or b"Infinity" in body or "out of range" in str(problem)):
            if isinstance(problem, msgspec.ValidationError):
                raise BadRequest(str(problem))
            raise BadRequest(f"{self._complaint}: {problem}")
        try:
            value = json.loads(body.decode())
            if _SURROGATE.search(body):
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"{self._complaint}: {error}") from None
        return self.convert(value)

    def _check_utf8(self, body: bytes) -> None:
        """msgspec takes any bytes for the texts that it has no field for."""
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"{self._complaint}: it is not UTF-8 (byte {error.start})") from None

    def _utf8(self, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise BadRequest(f"{self._complaint}: {error}") from None


def _spec(expected: Expected) -> Spec:
    if expected is None:
        return ARRAY
    if isinstance(expected, Mapping):
        return {key: _spec(each) for key, each in expected.items()}
    return expected if isinstance(expected, Nesting) else {"*": _spec(expected[0])}


def _read(body: bytes, spec: Spec, max_depth: int) -> Any:
    try:
        return numbers.read(body, spec, max_depth)
    except numbers.Declined:
        return _DECLINED


def encode(value: Any, *, nan: Nan = "null", sort: bool = False, newline: bool = False) -> bytes:
    """The value as JSON text in UTF-8.

    Takes what JSON has, and numpy scalars and arrays of any layout and dtype but complex, bytes and timedelta, tuples,
    objects with `__array__` (DataFrames are their rows), dates, enums, dataclasses, and keys that are numbers. int64,
    uint64 and longer integers are exact, float64 reads back to the same bits, float32 is the shortest text that reads
    back to the same float32. nan: NaN and infinities become null, or the literals that Python's json reads and writes.
    sort: keys in order. newline: one at the end. Raises BadAnswer that names the type JSON has no form for.
    """
    option = _OPTIONS[sort, newline]
    try:
        body = orjson.dumps(value, plain.default, option)
    except orjson.JSONEncodeError as error:
        plain.check(error)
    else:
        if not (nan == "literal" and _hides(body, b"u", b"null")) and not _hides(body, b"T", _NAT):
            return body
    return plain.dumps(value, nan == "literal", option)


def _hides(body: bytes, letter: bytes, text: bytes) -> bool:
    """Whether the text occurs; a letter that numbers have not is found, or not, at the speed of memory."""
    return letter in body and text in body


_NAT = b'"1970-01-01T00:00:00'
"""orjson writes numpy's NaT as the first second of 1970, and NaN as null."""
_OPTIONS = {
    (sort, newline): orjson.OPT_SERIALIZE_NUMPY
    | (orjson.OPT_SORT_KEYS if sort else 0)
    | (orjson.OPT_APPEND_NEWLINE if newline else 0)
    for sort in (False, True)
    for newline in (False, True)
}

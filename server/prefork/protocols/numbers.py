"""Lists in JSON become numpy arrays: `as_array` those that are Python lists, `read` those that are still text.

`read` parses a body with simdjson and copies the arrays that a `Spec` expects straight into numpy's memory, without
a Python object for each number, and with exactly the dtype and shape that `np.array` would find; everything else
becomes plain Python. What numpy would not make a number array of (ragged lists, booleans, nulls, texts) stays a
list. A body whose tree it cannot vouch for is `Declined`: the caller's ordinary decoder has the last word on it.
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import simdjson

from prefork.errors import BadRequest
from prefork.protocols.depth import check_depth, count

Array = np.ndarray[Any, Any]


class Nesting(enum.Enum):
    """What the lists inside an array of numbers mean."""

    SHAPE = "its shape: they have to be rectangular"
    IGNORED = "nothing: the numbers are in row-major order, however nested"


ARRAY = Nesting.SHAPE
ARRAY_FLAT = Nesting.IGNORED

Spec = Nesting | Mapping[str, "Spec"]
"""Where arrays of numbers are expected: by key, `*` for every element of a list."""

_BOM = b"\xef\xbb\xbf"
_KEYS = 64
"""Looking a key up is a walk over the object: one of more keys than this would cost their square."""
_AXES = 32
"""The most that every numpy has."""
_INT64 = 2**63 - 1
_SATURATED = 0xFFFFFF
"""simdjson counts an array's elements in 24 bits and pysimdjson trusts the count when it makes a list."""
_KEPT = 8 << 20
"""Bytes of the longest body that the thread's own parser, which never shrinks, is used for."""


class Declined(Exception):
    """The ordinary decoder has to read this body."""


class _Local(threading.local):
    parser: simdjson.Parser | None = None


_local = _Local()


def read(body: bytes, spec: Spec, max_depth: int) -> Any:
    """The body's value, with the numeric arrays that `spec` expects as writable numpy arrays.

    Raises Declined for a body that is no JSON, or that only the ordinary decoder reads rightly, and BadRequest for one
    that nests deeper than `max_depth`.
    """
    if body.startswith(_BOM) or (len(body) > 2 * _SATURATED and body.count(b",") >= _SATURATED - 1):
        raise Declined
    tree = _Tree()
    try:
        value = tree.value(_parser(len(body)).parse(body), spec)
    except (ValueError, RuntimeError):
        # RuntimeError is simdjson's for big integers and depth, and for a parser whose last document still lives.
        _local.parser = None
        raise Declined from None
    tree.check(body, value, max_depth)
    return value


def _parser(size: int) -> simdjson.Parser:
    if size > _KEPT:
        return simdjson.Parser()
    if _local.parser is None:
        _local.parser = simdjson.Parser()
    return _local.parser


class _Tree:
    """One walk over a document, and how many of the body's `[` it has accounted for."""

    __slots__ = ("axes", "brackets", "flat", "shaped")

    def __init__(self) -> None:
        self.brackets = 0
        self.axes = 0
        self.shaped = False
        self.flat = False

    def value(self, node: Any, spec: Spec | None) -> Any:
        """The node as a numpy array where `spec` expects one and it is one, else as plain Python."""
        if isinstance(node, simdjson.Object):
            return self._object(node, spec) if isinstance(spec, Mapping) else node.as_dict()
        if isinstance(node, simdjson.Array):
            return self._list(node, spec)
        return node

    def _object(self, node: simdjson.Object, spec: Mapping[str, Spec]) -> dict[str, Any]:
        keys = list(node)
        # A look-up by key finds the first of two, and stops at a NUL.
        if len(keys) > _KEYS or len(set(keys)) < len(keys) or any("\0" in key for key in keys):
            raise Declined
        return {key: self.value(node[key], spec.get(key)) for key in keys}

    def _list(self, node: simdjson.Array, spec: Spec | None) -> Any:
        if isinstance(spec, Nesting):
            found = self._numbers(node, spec)
            return node.as_list() if found is None else found
        element = None if spec is None else spec.get("*")
        return node.as_list() if element is None else [self.value(each, element) for each in node]

    def _numbers(self, node: simdjson.Array, nesting: Nesting) -> Array | None:
        numbers = _flatten(node)
        if numbers is not None and numbers.dtype == np.uint64 and nesting is ARRAY and numbers.min() <= _INT64:
            # numpy finds int64 and uint64 among these, and settles on float64.
            return None
        if numbers is None:
            return None
        lists, shape = _shape(node)
        if nesting is ARRAY_FLAT:
            self.flat = self.flat or shape is None
        elif shape is None or len(shape) > _AXES or numbers.size != math.prod(shape):
            return None
        else:
            numbers = numbers.reshape(shape)
            self.shaped = True
        self.brackets += lists
        self.axes = max(self.axes, len(shape or ()))
        return numbers

    def check(self, body: bytes, value: Any, max_depth: int) -> None:
        """Every list of the body is one that was seen.

        Lists among the numbers of an innermost list are not looked for: [[1, 2], [[3], [4]]] holds four numbers in two
        lists of two, as [[1, 2], [3, 4]] does, and only the number of its brackets tells that it is ragged.
        """
        try:
            plain = msgspec.json.encode(value, enc_hook=_nothing)
        except RecursionError:
            raise Declined from None
        seen = self.brackets + plain.count(b"[")
        exact = not self.flat and count(body, b"[", seen) == seen and not (b"\\" in body and b"\\u005" in body)
        if self.shaped and not exact:
            raise Declined
        if not exact or plain.count(b"[") + plain.count(b"{") + self.axes > max_depth:
            check_depth(body, max_depth)


def _nothing(_: object) -> None:
    """What an array is for `check`: nothing that holds a bracket."""


def _flatten(node: simdjson.Array) -> Array | None:
    """The numbers of a list of lists as a 1-D array of int64, uint64 or float64, or None where it holds anything else."""
    leaf: Any = node
    while isinstance(leaf, simdjson.Array):
        if not len(leaf):
            return None
        leaf = leaf[0]
    if type(leaf) is int:
        return _integers(node)
    return _floats(node) if type(leaf) is float else None


def _floats(node: simdjson.Array) -> Array | None:
    try:
        return np.frombuffer(node.as_buffer(of_type="d"), dtype=np.float64)
    except TypeError:
        return None


def _integers(node: simdjson.Array) -> Array | None:
    try:
        return np.frombuffer(node.as_buffer(of_type="i"), dtype=np.int64)
    except ValueError:
        return _unsigned(node)
    except TypeError:
        return _floats(node)


def _unsigned(node: simdjson.Array) -> Array | None:
    try:
        return np.frombuffer(node.as_buffer(of_type="u"), dtype=np.uint64)
    except ValueError:
        # Negative and above int64's range both.
        return None
    except TypeError:
        return _floats(node)


def _shape(node: simdjson.Array) -> tuple[int, tuple[int, ...] | None]:
    """How many lists a list of lists is, itself included, and its shape; None if two of an axis differ in length."""
    level: list[Any] = [node]
    lists, shape = 1, [len(node)]
    first: Any = node[0]
    while isinstance(first, simdjson.Array):
        lists += math.prod(shape)
        first = first[0]
        inner: Iterable[Any] = chain.from_iterable(level)
        # The innermost lists are many: were they kept, the garbage collector would look at all of them.
        if isinstance(first, simdjson.Array):
            inner = level = list(inner)
        try:
            sizes = set(map(len, inner))
        except TypeError:
            return lists, None
        if len(sizes) > 1:
            return lists, None
        shape.append(sizes.pop())
    return lists, tuple(shape)


_TEXT = 64 << 20
"""Bytes that an array of texts may take: numpy gives every cell the room of the longest."""
_SHORT = 4096
"""Bytes of a body that cannot blow up into more than some MB of text cells."""


def as_array(values: Any, field: str = "the array", *, size: int | None = None) -> Array:
    """The array that numpy makes of JSON lists: int64, float64, bool, text, or objects for what mixes with null.

    Any text among the cells makes all of them text. Integers of more than 64 bits and JSON objects make an object
    array. Texts that numpy would need more than 64 MiB for are `str` in an object array. size: bytes of the body that
    the lists come from, if that is known. Raises BadRequest, which names the field, for lists that are ragged or nested too deep for numpy.
    """
    try:
        return np.array(values) if size is not None and size <= _SHORT else _bounded(values)
    except (ValueError, OverflowError):
        problem = f"is ragged, or nested deeper than {_AXES} lists: its lists must have one length on each axis"
        raise BadRequest(f"{field} {problem}") from None


def _bounded(values: Any) -> Array:
    cells = np.array(values, dtype=object)
    flat = cells.ravel().tolist()
    longest = max((len(cell) for cell in flat if type(cell) is str), default=0)
    if 4 * longest * len(flat) <= _TEXT or not set(map(type, flat)) <= {str, int, float, bool}:
        return np.array(values)
    cells[...] = np.fromiter(map(str, flat), dtype=object, count=len(flat)).reshape(cells.shape)
    return cells

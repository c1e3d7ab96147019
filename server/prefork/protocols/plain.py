"""Python and numpy values as what orjson writes.

`default` serves the values that orjson hands back one at a time; `dumps` converts a whole value first, for what orjson
refuses before it asks (keys that are numbers, integers beyond 64 bits, another byte order) and for what it would
write wrongly (NaN where the literal is wanted, NaT).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson

from prefork.errors import BadAnswer
from prefork.payload import NoMeta

_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_INT64, _UINT64 = -(2**63), 2**64
_LITERALS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def default(value: Any) -> Any:
    """The value in a form nearer to JSON. Raises BadAnswer that names the type if there is none."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, (tuple, Mapping)):
        return list(value) if isinstance(value, tuple) else dict(value) or (None if type(value) is NoMeta else {})
    if isinstance(value, np.generic):
        return _scalar(value)
    if isinstance(value, dt.date):
        # Of a subclass, such as a pandas Timestamp: whose NaT is not equal to itself.
        return value.isoformat() if value == value else None  # noqa: PLR0124
    if hasattr(value, "__array__"):
        return _from_protocol(value)
    if type(value).__name__ == "NAType":
        return None
    raise BadAnswer(f"the answer holds a {_name(value)}, which JSON has no form for")


def check(error: orjson.JSONEncodeError) -> None:
    """Raises the BadAnswer that `default` raised inside orjson, if it was that."""
    if isinstance(error.__cause__, BadAnswer):
        raise error.__cause__ from None


def dumps(value: Any, literal: bool, option: int) -> bytes:  # noqa: FBT001
    """The value as JSON, converted in full first. literal: NaN and infinities as such, not as null."""
    try:
        return orjson.dumps(plain(value, literal), default, option)
    except orjson.JSONEncodeError as error:
        check(error)
        raise BadAnswer(f"the answer cannot be written as JSON: {error}") from None
    except RecursionError:
        raise BadAnswer("the answer cannot be written as JSON: it nests too deep, or holds itself") from None


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _array(array: np.ndarray[Any, Any]) -> Any:
    """An array that orjson does not take as it is, as one that it does or as lists."""
    array = widen(array)
    kind = array.dtype.kind
    if kind in "cSVm":
        raise BadAnswer(f"the answer holds an array of {array.dtype}, which JSON has no form for")
    if array.ndim == 0:
        return array[()] if kind != "O" else array.item()
    if kind == "M":
        return _times(array)
    if kind in "OUT":
        return array.tolist()
    if array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def widen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A bfloat16 or float8 array of ml_dtypes as float32, any other as it is."""
    narrow = array.dtype.kind == "V" and "float" in array.dtype.name
    return array.astype(np.float32) if narrow else array


def _times(array: np.ndarray[Any, Any]) -> list[Any]:
    texts = np.datetime_as_string(array, timezone="naive").astype(object)
    texts[np.isnat(array)] = None
    return texts.tolist()  # type: ignore[no-any-return]


def _scalar(value: np.generic) -> Any:
    if value.dtype.kind == "V":
        return _array(np.asarray(value))
    if value.dtype.kind in "iufb":
        return value.item() if value.dtype.itemsize <= 8 else float(value)
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else str(value)
    raise BadAnswer(f"the answer holds a {_name(value)}, which JSON has no form for")


def _from_protocol(value: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value)
    except Exception as error:
        # The user's object; torch, for one, refuses with TypeError or RuntimeError.
        raise BadAnswer(f"the answer holds a {_name(value)} that does not become an array: {error}") from error


def plain(value: Any, literal: bool) -> Any:  # noqa: FBT001
    """The value with nothing in it that orjson refuses, or writes wrongly, without asking `default`."""
    for kinds, form in _FORMS:
        if isinstance(value, kinds):
            return form(value, literal)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), literal) for field in dataclasses.fields(value)}
    if hasattr(value, "__array__"):
        return _plain_array(_from_protocol(value), literal)
    return value


def _key(key: Any) -> str:
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return str(key)
    if key is None or isinstance(key, (bool, int, float)):
        return orjson.dumps(key).decode() if isinstance(key, bool) or key is None else repr(key)
    if isinstance(key, dt.date):
        return key.isoformat()
    raise BadAnswer(f"the answer holds a dict with a key of type {_name(key)}; JSON's keys are texts")


def _plain_dict(value: Mapping[Any, Any], literal: bool) -> dict[str, Any]:  # noqa: FBT001
    return {_key(key): plain(each, literal) for key, each in value.items()}


def _plain_list(value: list[Any] | tuple[Any, ...], literal: bool) -> list[Any]:  # noqa: FBT001
    return [plain(each, literal) for each in value]


def _plain_int(value: int, _: bool) -> Any:  # noqa: FBT001
    return value if _INT64 <= value < _UINT64 else orjson.Fragment(int.__repr__(value).encode())


def _plain_float(value: Any, literal: bool) -> Any:  # noqa: FBT001
    return _literal(value) if literal and not math.isfinite(value) else value


def _plain_scalar(value: np.generic, literal: bool) -> Any:  # noqa: FBT001
    found = _scalar(value)
    return _plain_float(found, literal) if isinstance(found, (float, np.floating)) else found


def _literal(value: Any) -> orjson.Fragment:
    return orjson.Fragment(_LITERALS[str(float(value))])


def _plain_array(array: np.ndarray[Any, Any], literal: bool) -> Any:  # noqa: FBT001
    array = widen(array)
    if array.dtype.kind == "O":
        return plain(array.tolist(), literal)
    if array.dtype.kind == "f" and literal and not np.isfinite(array).all():
        return _literals(array)
    if array.dtype.kind == "M":
        return default(array)
    return array if array.dtype.isnative and array.dtype.itemsize <= 8 else default(array)


def _literals(array: np.ndarray[Any, Any]) -> Any:
    """Lists of the texts that orjson writes for the finite numbers and of the literals for the others."""
    flat = default(array.reshape(-1))
    cells = np.empty(flat.size, dtype=object)
    cells[:] = orjson.loads(orjson.dumps(flat, option=_NUMPY))
    for at in np.flatnonzero(~np.isfinite(flat)):
        cells[at] = _literal(flat[at])
    return cells.reshape(array.shape).tolist()


_FORMS: tuple[tuple[Any, Callable[[Any, bool], Any]], ...] = (
    (Mapping, _plain_dict),
    ((list, tuple), _plain_list),
    (enum.Enum, lambda value, literal: plain(value.value, literal)),
    (int, _plain_int),
    ((float, np.floating), _plain_float),
    (np.ndarray, _plain_array),
    (str, lambda value, _: value),
    (np.generic, _plain_scalar),
)

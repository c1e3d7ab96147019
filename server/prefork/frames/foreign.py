"""What an answer may hold besides plain values and arrays, since JSON has a form for it: times, enums, data classes, frames.

Each crosses as what every protocol makes the same of. What JSON has no form for is refused here, in the words that the
protocols would say it in.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from prefork.errors import BadAnswer
from prefork.payload import NoMeta

DATETIME, DATE, TIME, UUID, STAMP, RANGE = range(6)
"""What a value that crosses as its text is; a STAMP is a date of a class of its own, like a pandas Timestamp."""

_EXACT = {dt.datetime: DATETIME, dt.date: DATE, dt.time: TIME}
_READ: dict[int, Callable[[str], Any]] = {
    DATETIME: dt.datetime.fromisoformat,
    DATE: dt.date.fromisoformat,
    TIME: dt.time.fromisoformat,
    UUID: uuid.UUID,
    RANGE: lambda text: range(*map(int, text.split())),
}


class Stamp(dt.date):
    """A date of which only the text is known."""

    __slots__ = ("_text",)
    _text: str

    @classmethod
    def of(cls, text: str) -> Stamp:
        """One of that text."""
        made = cls(1, 1, 1)
        made._text = text
        return made

    def isoformat(self) -> str:
        """The text."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stamp) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def as_text(value: Any) -> tuple[int, str] | None:
    """A time, a UUID or a range as `from_text` takes it; None for anything else."""
    code = _EXACT.get(type(value))
    if code is not None:
        return code, value.isoformat()
    if type(value) is uuid.UUID:
        return UUID, str(value)
    if type(value) is range:
        return RANGE, f"{value.start} {value.stop} {value.step}"
    return (STAMP, value.isoformat()) if isinstance(value, dt.date) else None


def from_text(code: int, text: str) -> Any:
    """What `as_text` was given. Raises ValueError, KeyError or TypeError for what is none."""
    return Stamp.of(str(text)) if code == STAMP else _READ[code](text)


def is_missing(value: Any) -> bool:
    """Whether it is one of pandas' ways to say null."""
    return type(value).__name__ == "NAType" or (isinstance(value, dt.date) and value != value)  # noqa: PLR0124


def plainer(value: Any) -> Any:
    """A value of a class of its own as one of Python's own or numpy's, which may hold others of them. Raises BadAnswer."""
    for kinds, form in _FORMS:
        if isinstance(value, kinds):
            return form(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in fields if not name.startswith("_")}
    if hasattr(value, "__array__") and not isinstance(value, type):
        return _array(value)
    raise refused(value)


def plainer_key(key: Any) -> Any:
    """A dict's key likewise; enums and times are left. Raises BadAnswer for one that is no text in JSON."""
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, enum.Enum):
        return key if type(key).__mro__[1] is enum.Enum else plainer(key)
    if key is None or isinstance(key, bool | dt.date):
        return key
    if isinstance(key, str | int | float):
        return plainer(key)
    raise BadAnswer(f"the answer holds a dict with a key of type {_name(key)}; JSON's keys are texts")


def enumerated(value: Any) -> enum.Enum:
    """An enum's member of that value."""
    made: Any = enum.Enum
    found: enum.Enum = next(iter(made("Enum", {"value_": value})))
    return found


def refused(value: Any) -> BadAnswer:
    """The error of a value that has no form."""
    return BadAnswer(f"the answer holds a {_name(value)}, which JSON has no form for")


def _array(value: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value)
    except Exception as error:  # the user's object; torch, for one, refuses with TypeError or RuntimeError
        raise BadAnswer(f"the answer holds a {_name(value)} that does not become an array: {error}") from error


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _mapping(value: Mapping[Any, Any]) -> dict[Any, Any] | None:
    return dict(value) or (None if type(value) is NoMeta else {})


_FORMS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__index__),
    (float, float.__float__),
    ((list, tuple), list),
    (Mapping, _mapping),
)

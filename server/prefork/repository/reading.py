"""Strict reading of structs out of what YAML or JSON gave: a key that nobody knows or a value that cannot be meant is a `Wrong`.

A struct's fields say how they are read in `About`, as settings do; where they say nothing, the type does. What a value of
nothing (`threads:`) says is as good as nothing.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from prefork.settings.setting import About, Reader, reader

T = TypeVar("T")


class Wrong(ValueError):
    """What is wrong with a value, and the way to it: `batching.max_batch_size: a whole number of at least 0 is needed`."""

    def __init__(self, problem: object, *path: str) -> None:
        inner = problem if isinstance(problem, Wrong) else None
        self.path: tuple[str, ...] = (*path, *inner.path) if inner else path
        self.problem: str = inner.problem if inner else str(problem)
        super().__init__(f"{'.'.join(self.path)}: {self.problem}" if self.path else self.problem)


class Key(msgspec.Struct, frozen=True):
    """One key of a file: the field that it is, what is written about it and how it is read."""

    field: str
    about: About
    read: Reader


@functools.cache
def keys(kind: type[msgspec.Struct]) -> dict[str, Key]:
    """What may be said of a struct, by the name that a file has for it, in the order of the fields."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.encode_name: _key(field.name, hints[field.name]) for field in msgspec.structs.fields(kind)}


def said(raw: Any, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The struct's fields that a mapping says something about, read. Raises Wrong that names the key."""
    if not isinstance(raw, Mapping):
        raise Wrong(f"a mapping is needed, of {', '.join(keys(kind))}")
    values = {}
    for name, value in raw.items():
        key = _known(name, kind)
        if value is not None:
            values[key.field] = _read(key.read, value, str(name))
    return values


def structure(kind: type[T]) -> Callable[[Any], T]:
    """A reader of a mapping into that struct."""
    return lambda raw: kind(**said(raw, kind))  # type: ignore[arg-type]


def each(read: Callable[[Any], T], what: str) -> Callable[[Any], tuple[T, ...]]:
    """A reader of a list of what `read` reads; what: how a message calls them."""

    def read_all(raw: Any) -> tuple[T, ...]:
        if not isinstance(raw, list | tuple):
            raise Wrong(f"a list of {what} is needed")
        return tuple(_read(read, value, str(number)) for number, value in enumerate(raw, 1))

    return read_all


def values(read: Callable[[Any], T], what: str) -> Callable[[Any], dict[str, T]]:
    """A reader of a mapping of names to what `read` reads; what: how a message calls it."""

    def read_all(raw: Any) -> dict[str, T]:
        if not isinstance(raw, Mapping) or not all(isinstance(name, str) for name in raw):
            raise Wrong(f"a mapping of {what} is needed")
        return {name: _read(read, value, name) for name, value in raw.items()}

    return read_all


def check_json(value: Any, *path: str) -> None:
    """Raise Wrong for what JSON would make something else of, or nothing: keys that are no texts, infinities and NaN."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise Wrong(f"the key {name!r} is no text; put it in quotes", *path)
            check_json(inner, *path, name)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value, 1):
            check_json(inner, *path, str(number))
    elif isinstance(value, float) and not math.isfinite(value):
        raise Wrong("a finite number is needed", *path)


def _key(field: str, hint: Any) -> Key:
    plain, *notes = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    about = next((note for note in notes if isinstance(note, About)), About(""))
    return Key(field, about, about.read or reader(plain))


def _known(name: Any, kind: type[msgspec.Struct]) -> Key:
    known = keys(kind)
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.7)
        hint = f"did you mean {near[0]}? Known" if near else "known"
        raise Wrong(f"no such key; {hint}: {', '.join(known)}", str(name))
    return known[name]


def _read(read: Callable[[Any], T], raw: Any, *path: str) -> T:
    try:
        return read(raw)
    except ValueError as error:
        raise Wrong(error, *path) from None

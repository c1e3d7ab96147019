"""Triton's ModelConfig out of its two forms, text-protobuf and JSON, into the same structs.

The structs say which fields repeat and which are maps, which the text form alone does not tell. JSON has names in
snake_case or camelCase and 64-bit numbers as texts too, as protobuf's JSON allows. What is not known is noted and left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType

from prefork.repository import pbtxt
from prefork.repository.triton_types import IGNORED, TritonConfig

T = TypeVar("T", bound=msgspec.Struct)
_WORDS = {"t": True, "true": True, "True": True, "f": False, "false": False, "False": False}


def from_text(text: str) -> tuple[TritonConfig, list[str]]:
    """The config and notes on what in it has no effect. Raises ValueError that names the line or the field."""
    return _read(pbtxt.read(text), TritonConfig, in_text=True)


def from_json(value: Any) -> tuple[TritonConfig, list[str]]:
    """The same from parsed JSON."""
    return _read(value, TritonConfig, in_text=False)


@functools.cache
def fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The type of each field, without its being UNSET."""
    return {name: _plain(hint) for name, hint in get_type_hints(kind).items()}


def _plain(hint: Any) -> Any:
    parts = [part for part in get_args(hint) if part is not UnsetType]
    return parts[0] if UnsetType in get_args(hint) else hint


def _read(value: Any, kind: type[T], *, in_text: bool) -> tuple[T, list[str]]:
    form = _Form(in_text=in_text)
    shaped = form.message(value, kind, "")
    try:
        return msgspec.convert(shaped, kind, strict=False), form.notes
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$.")
        raise ValueError(f"{place.rstrip('`')}: {problem}" if place else problem) from None


class _Form:
    """Brings one of the two forms into the shape that the structs have, and gathers the notes."""

    def __init__(self, *, in_text: bool) -> None:
        self._in_text = in_text
        self.notes: list[str] = []

    def message(self, value: Any, kind: type[msgspec.Struct], path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{path.rstrip('.') or 'the config'}: an object is needed")  # noqa: TRY004
        known, ignored = fields(kind), IGNORED.get(kind, ())
        shaped: dict[str, Any] = {}
        for said, given in value.items():
            name = snake(said)
            if given is None:
                continue
            if name not in known or name in ignored:
                self._note(f"{path}{name}", given, known=name in known)
                continue
            if name in shaped:
                raise ValueError(f"{path}{name} is said twice")
            shaped[name] = self._field(given, known[name], f"{path}{name}")
        return shaped

    def _note(self, path: str, given: Any, *, known: bool) -> None:
        """Triton's own JSON spells every default out, and that is nothing said."""
        default = (
            given in (["false"], ["FORMAT_NONE"]) if self._in_text else given == "FORMAT_NONE" or path == "optimization"
        )
        if known and (default or not given):
            return
        self.notes.append(f"{path} has no effect" if known else f"{path} is not known and has no effect")

    def _field(self, given: Any, hint: Any, path: str) -> Any:
        if get_origin(hint) is list:
            each = get_args(hint)[0]
            if not isinstance(given, list):
                raise ValueError(f"{path}: a list is needed")
            return [self._one(value, each, f"{path}.") for value in given]
        if get_origin(hint) is dict and get_args(hint)[1] is not Any:
            return self._map(given, get_args(hint)[1], path)
        if not self._in_text:
            return self._one(given, hint, f"{path}.")
        if len(given) != 1:
            raise ValueError(f"{path}: one value is needed, not {len(given)}")
        return self._one(given[0], hint, f"{path}.")

    def _map(self, given: Any, hint: Any, path: str) -> dict[str, Any]:
        if self._in_text:
            given = dict(self._entry(entry, path) for entry in given)
        if not isinstance(given, Mapping):
            raise ValueError(f"{path}: an object is needed")  # noqa: TRY004
        return {str(key): self._one(value, hint, f"{path}.{key}.") for key, value in given.items()}

    def _entry(self, entry: Any, path: str) -> tuple[str, Any]:
        """One entry of a map in the text form: a message with `key` and `value`."""
        if not isinstance(entry, dict) or any(len(each) != 1 for each in entry.values()) or "key" not in entry:
            raise ValueError(f"{path}: an entry has one key and one value")
        return str(entry["key"][0]), entry["value"][0] if "value" in entry else {}

    def _one(self, value: Any, hint: Any, path: str) -> Any:
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.message(value, hint, path)
        if get_origin(hint) is dict:
            return {}
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{path.rstrip('.')}: a number within 64 bits is needed")
        if hint is bool and isinstance(value, pbtxt.Word):
            return _WORDS.get(value, value)
        return str(value) if isinstance(value, pbtxt.Word) else value


def snake(name: Any) -> str:
    """Protobuf's name of a field, from either of its spellings in JSON."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), str(name))

"""One setting: what it is for, where it may be said, and how what was said is read.

A reader takes what a source gave (text from flags and variables, any scalar or mapping from YAML) and returns the
value that the setting has, or raises ValueError with what would have been right.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from typing import Any, Literal, get_args, get_origin

import msgspec

from prefork.errors import SettingError
from prefork.settings import document

Reader = Callable[[Any], Any]

TRUE = frozenset({"1", "true", "t", "yes", "on"})
FALSE = frozenset({"0", "false", "f", "no", "off"})

_SIZE = re.compile(r"(\d{1,1000})\s*(?:([kmg])(?:i?b)?)?", re.IGNORECASE)
_FACTOR = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


LARGEST = (1 << 63) - 1
"""What the kernel, and most of what is asked with a number, can take."""
LONGEST = 1e9
"""Seconds; clocks and locks take no more than a few times that."""
MOST_MICROSECONDS = int(LONGEST * 1e6)
MOST = 1024
"""Instances of a version, threads that call a model, models that load at the same time."""


class About(msgspec.Struct, frozen=True):
    """What is written about a setting beside its field in `Settings`.

    text: one paragraph for a person; flags, env: the names, separated by spaces, the first that is set wins;
    default: what the table says where the default is worked out at start; read: its reader, where the type does not say it.
    is_secret: no error repeats what was said.
    """

    text: str
    flags: str = ""
    env: str = ""
    default: str = ""
    read: Reader | None = None
    is_secret: bool = False


class Given(msgspec.Struct, frozen=True):
    """What one source says for one setting.

    source: how the line of an error opens, up to the value: `--workers `, `GUNICORN_WORKERS=`, `prefork.yaml: workers: `.
    """

    source: str
    raw: Any

    def read(self, about: About) -> Any:
        """The value, or a SettingError that names the source, what it said and what would have been right."""
        try:
            return about.read(self.raw) if about.read else self.raw
        except ValueError as error:
            raise SettingError(f"{self._said(about)}: {error}") from None

    def _said(self, about: About) -> str:
        """A short scalar is repeated; a structure is not, it may hold what does not belong in a log."""
        value = str(self.raw)
        if not about.is_secret and isinstance(self.raw, str | int | float) and re.fullmatch(r"[^\[{\n].{0,60}", value):
            return self.source + value
        return self.source.rstrip(" =:")


def text(raw: Any) -> str:
    """Text as it stands. YAML's own reading of `1.10` or `no` is refused: it is not what was written."""
    if isinstance(raw, str) and "\0" in raw:
        raise ValueError("text without the character NUL is needed")
    if isinstance(raw, str):
        return raw
    if isinstance(raw, int) and not isinstance(raw, bool):
        return str(raw)
    raise ValueError("text is needed; put it in quotes")


def segment(raw: Any) -> str:
    """Text that can stand as one part of a URL's path."""
    value = text(raw)
    if not value or re.search(r"[\s/:?#%]", value):
        raise ValueError("a name without spaces and without any of / : ? # % is needed")
    return value


def boolean(raw: Any) -> bool:
    """1, true, t, yes, on or 0, false, f, no, off, in any case, and nothing else."""
    word = str(raw).lower()
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise ValueError("true or false is needed (also 1/0, t/f, yes/no, on/off)")


def either(*words: str) -> Reader:
    """A reader of a boolean, or of one of `words`, which stays text."""

    def read(raw: Any) -> bool | str:
        word = str(raw).lower()
        if word in words:
            return word
        try:
            return boolean(raw)
        except ValueError:
            raise ValueError(f"true, false or {' or '.join(words)} is needed") from None

    read.words = words  # type: ignore[attr-defined]
    return read


def whole(least: int, most: int | None = None, *, words: Collection[str] = ()) -> Reader:
    """A reader of whole numbers from `least` to `most`, or of one of `words`, which stays text."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    wanted = " or ".join([f"a whole number {bounds}", *words])

    def read(raw: Any) -> int | str:
        if raw in words:
            return str(raw)
        if isinstance(raw, bool) or not re.fullmatch(r"[+-]?\d{1,1000}", str(raw)):
            raise ValueError(f"{wanted} is needed")
        value = int(raw)
        if value < least or (most is not None and value > most):
            raise ValueError(f"{wanted} is needed")
        if value > LARGEST:
            raise ValueError(f"{wanted} is needed, within 64 bits")
        return value

    return read


def seconds(raw: Any) -> float:
    """A finite number of seconds of at least 0."""
    return _seconds(raw, 0.0)


def seconds_from(least: float) -> Reader:
    """A reader of seconds of at least that many."""
    return lambda raw: _seconds(raw, least)


def _seconds(raw: Any, least: float) -> float:
    try:
        value = math.nan if isinstance(raw, bool) else float(raw)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or value < least:
        raise ValueError(f"a number of seconds of at least {least:g} is needed")
    if value > LONGEST:
        raise ValueError(f"a number of seconds of at most {LONGEST:.0f} is needed")
    return value


def size(raw: Any) -> int:
    """A number of bytes, with K, M or G (KiB, MB, ... alike) for powers of 1024."""
    match = None if isinstance(raw, bool) else _SIZE.fullmatch(str(raw).strip())
    if match is None:
        raise ValueError("a number of bytes is needed, for example 67108864 or 64M")
    value = int(match[1]) * _FACTOR[(match[2] or "").lower()]
    if value > LARGEST:
        raise ValueError("a number of bytes within 64 bits is needed")
    return value


def version_label(raw: Any) -> str:
    """A version, or the `version` in an object of Kubernetes labels; empty where it is not in there."""
    found = raw
    if isinstance(raw, str) and raw.lstrip().startswith("{"):
        try:
            found = json.loads(raw)
        except ValueError:
            return ""
    return str(found.get("version", "")) if isinstance(found, dict) else text(found)


def one_of(*words: str) -> Reader:
    """A reader of one of some words, in any case. YAML's null is the word null."""

    def read(raw: Any) -> str:
        word = "null" if raw is None else str(raw).lower()
        if word not in words:
            raise ValueError(f"one of {', '.join(words)} is needed")
        return word

    return read


def several(read: Reader) -> Reader:
    """A reader of several values: a list, text with commas, or what a repeated flag has gathered."""

    def read_all(raw: Any) -> tuple[Any, ...]:
        given = raw if isinstance(raw, list | tuple) else [raw]
        words = [word for each in given for word in (each.split(",") if isinstance(each, str) else [each])]
        return tuple(read(word.strip() if isinstance(word, str) else word) for word in words if word != "")

    read_all.many = True  # type: ignore[attr-defined]
    return read_all


def mapping(raw: Any) -> dict[str, Any]:
    """A mapping with text keys, or the YAML or JSON text of one."""
    value = raw
    if isinstance(raw, str):
        try:
            value = document.read(raw)
        except ValueError as error:
            raise ValueError(f"neither YAML nor JSON: {error}") from None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError("a mapping of names to values is needed")
    return value


def reader(hint: Any) -> Reader:
    """The reader for a field of that type."""
    if get_origin(hint) is Literal:
        return one_of(*get_args(hint))
    return {str: text, bool: boolean, int: whole(0), float: seconds}.get(hint, mapping)

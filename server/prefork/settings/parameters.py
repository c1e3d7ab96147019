"""The constructor parameters of the user's class, as Seldon's operator and people write them.

Two forms of text are read: Seldon's list `[{"name": "depth", "type": "INT", "value": "3"}, ...]` and a plain JSON object
`{"depth": 3}`. `assignment` reads `name=value`. Each raises ValueError with the parameter's name in the message.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from prefork.settings.setting import FALSE, TRUE


def read(raw: Any) -> dict[str, Any]:
    """Names to values, out of either form of text, or out of what YAML or a caller already parsed."""
    value = _parsed(raw) if isinstance(raw, str) else raw
    if isinstance(value, dict):
        return _named(value)
    if isinstance(value, list):
        return dict(map(_typed, value))
    raise ValueError('a JSON list of {"name", "type", "value"} or a JSON object is needed')


def assignment(raw: str) -> tuple[str, Any]:
    """`name=value`: the value is JSON where it reads as JSON, else text."""
    name, equals, value = raw.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"{raw!r} is not name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
    except RecursionError:
        raise ValueError(f"{name}: its JSON nests too deep") from None


def _parsed(raw: str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _named(value: dict[Any, Any]) -> dict[str, Any]:
    for name in value:
        _check_name(name)
    return value


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"parameter {name!r}: the name of a constructor's argument is needed")
    return name


def _typed(item: Any) -> tuple[str, Any]:
    if not isinstance(item, dict) or "name" not in item:
        raise ValueError(f'{json.dumps(item)}: an object with "name", "type" and "value" is needed')
    name = _check_name(item["name"])
    kind, value = item.get("type"), item.get("value")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f"parameter {name!r}: type is {kind!r}, not one of {', '.join(_TYPES)}")
    if not isinstance(value, str | int | float):
        found = json.dumps(value)
        raise ValueError(f"parameter {name!r}: value is {found}, not text, a number, true or false")  # noqa: TRY004
    try:
        return name, _TYPES[kind](value)
    except (ValueError, OverflowError):
        raise ValueError(f"parameter {name!r}: {value!r} is no {kind}") from None


def _int(value: str | float) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    return int(value)


def _float(value: str | float) -> float:
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - the caller words it
    return float(value)


def _bool(value: str | float) -> bool:
    word = str(value).lower()
    if word in TRUE | {"y"}:
        return True
    if word in FALSE | {"n"}:
        return False
    raise ValueError


_TYPES: dict[str, Callable[[Any], Any]] = {
    "INT": _int,
    "FLOAT": _float,
    "DOUBLE": _float,
    "STRING": str,
    "BOOL": _bool,
}
"""Seldon's types and what makes a value of each. BOOL takes what distutils' strtobool took."""

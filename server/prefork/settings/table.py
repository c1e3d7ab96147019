"""The table of settings in docs/settings.md, made from what is written beside each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefork.settings.setting import About

_HEAD = "| prefork.yaml | flag | variable | default | meaning |\n|---|---|---|---|---|\n"


def markdown(abouts: Mapping[str, About], defaults: Mapping[str, Any]) -> str:
    """One row a setting, in the order given."""
    return _HEAD + "".join(_row(name, about, defaults[name]) for name, about in abouts.items())


def _row(name: str, about: About, default: Any) -> str:
    cells = (f"`{name}`", _code(about.flags), _code(about.env), about.default or _plain(default), about.text)
    return f"| {' | '.join(cells)} |\n"


def _code(names: str) -> str:
    return " ".join(f"`{each}`" for each in names.split())


def _plain(default: Any) -> str:
    if default in ("", None, ()) or default == {}:
        return "none"
    return (
        f"`{str(default).lower()}`"
        if isinstance(default, bool)
        else f"`{default:g}`"
        if isinstance(default, float)
        else f"`{default}`"
    )

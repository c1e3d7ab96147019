"""Environment variables for a model's processes, as they are said in a file: names to texts that a process can be started with."""

from __future__ import annotations

from typing import Any

from prefork.settings.setting import mapping, text


def read(raw: Any) -> dict[str, str]:
    """A mapping of variables to texts. Raises ValueError that names the variable."""
    return {name: _value(name, value) for name, value in mapping(raw).items()}


def check_name(name: str) -> None:
    """Raises ValueError for what no process can be started with."""
    if not name or "=" in name or "\0" in name:
        raise ValueError("a variable's name is needed, without = and NUL")


def _value(name: str, raw: Any) -> str:
    try:
        check_name(name)
        return text(raw)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None

"""The tables of model.yaml's keys in docs/repository.md, made from what is written beside the fields."""

from __future__ import annotations

from typing import Any

import msgspec

from prefork.repository.config import Batching, ModelConfig, VersionPolicy, Warmup
from prefork.repository.reading import Key, keys

_HEAD = "| key | default | meaning |\n|---|---|---|\n"
_PARTS: dict[str, type[msgspec.Struct]] = {"batching": Batching, "versions": VersionPolicy, "warmup": Warmup}


def markdown() -> str:
    """One table for the whole file, and one for each of the keys that have keys of their own."""
    parts = [f"\nUnder `{name}`:\n\n{_table(kind)}" for name, kind in _PARTS.items()]
    return _table(ModelConfig) + "".join(parts)


def _table(kind: type[msgspec.Struct]) -> str:
    defaults = msgspec.structs.asdict(kind())
    return _HEAD + "".join(_row(name, key, defaults[key.field]) for name, key in keys(kind).items())


def _row(name: str, key: Key, default: Any) -> str:
    return f"| `{name}` | {key.about.default or _plain(default)} | {key.about.text} |\n"


def _plain(default: Any) -> str:
    if default is None or default in ("", (), {}):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"

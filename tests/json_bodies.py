"""A message with arrays in it, and what its bodies are decoded to."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from prefork.protocols import json


class Part(msgspec.Struct):
    array: Any = None
    names: list[Any] | None = None


class Message(msgspec.Struct):
    data: Part | None = None
    items: list[Part] = []
    note: Any = None


WIRE = json.Wire(Message, {"data": {"array": json.ARRAY}, "items": [{"array": json.ARRAY_FLAT}]})


LONG = " " * 3000
"""Put behind a body, it makes it long enough for the long way."""


def both(body: str, wire: json.Wire[Any] = WIRE) -> tuple[Any, Any]:
    """What a short body gives, and the same one made long."""
    short, long = body.encode(), (body + LONG).encode()
    assert len(short) < 2048
    return wire.decode(short), wire.decode(long)


def array_of(found: Any) -> np.ndarray:
    return found if isinstance(found, np.ndarray) else json.as_array(found)


def same_array(ours: np.ndarray, theirs: np.ndarray) -> bool:
    same = ours.dtype == theirs.dtype and ours.shape == theirs.shape
    return same and (ours.tobytes() == theirs.tobytes() if ours.dtype != object else ours.tolist() == theirs.tolist())

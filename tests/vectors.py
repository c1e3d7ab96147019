"""Answers compared with recorded ones."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

SHORTER = {"returns/f32-third"}
"""Lines whose float32 we print as the shortest text of that float32, and the recorded server as that of its float64."""


def same_json(ours: str | bytes, recorded: str | bytes, line: str = "") -> bool:
    """Whether two JSON texts are the same value: an int is no float and no bool, floats are equal to the bit."""
    return _same(json.loads(ours), json.loads(recorded), as_float32=line in SHORTER)


def _same(ours: Any, recorded: Any, *, as_float32: bool) -> bool:
    if type(ours) is not type(recorded):
        return False
    if isinstance(ours, dict):
        keys = ours.keys() == recorded.keys()
        return keys and all(_same(ours[key], recorded[key], as_float32=as_float32) for key in ours)
    if isinstance(ours, list):
        pairs = zip(ours, recorded, strict=False)
        return len(ours) == len(recorded) and all(_same(a, b, as_float32=as_float32) for a, b in pairs)
    if isinstance(ours, float):
        return bits(ours) == bits(recorded) or (as_float32 and np.float32(ours) == np.float32(recorded))
    return bool(ours == recorded)


def bits(number: float) -> bytes:
    """The eight bytes of a float, so that -0.0 is not 0.0 and NaN is itself."""
    return struct.pack("<d", number)

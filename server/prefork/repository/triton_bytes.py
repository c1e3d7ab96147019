"""The elements of a BYTES tensor as Triton has them in files and in its models' memory: each behind its length in 4 bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_LENGTH = struct.Struct("<I")


def elements(data: bytes) -> Iterator[bytes]:
    """Them, in their order. Raises ValueError where the last one is not whole."""
    at = 0
    while at < len(data):
        begin = at + _LENGTH.size
        end = begin + (_LENGTH.unpack_from(data, at)[0] if begin <= len(data) else 0)
        if end > len(data):
            raise ValueError(
                f"it ends within an element: that at {at} ends behind the {len(data)} bytes that there are"
            )
        yield data[begin:end]
        at = end

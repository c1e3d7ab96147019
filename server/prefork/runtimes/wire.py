"""The protobuf wire format, as far as one has to read it to know a file (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends; a cut-off one counts as what is there."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, at

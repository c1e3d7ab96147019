"""How a frame looks: a prefix of 16 bytes, a head in msgpack, and the raw bytes of arrays.

     0  u8   kind: 1 REQUEST  2 ANSWER  3 END  4 ERROR
     1  u8   flags: 1 LAST  2 ARENA  4 KEPT  8 STAYS
     2  u16  zero
     4  u32  bytes of the head
     8  u64  bytes of the buffers
    16  the head, then the buffers, each padded to a multiple of 64; with ARENA they are in the arena and not here

LAST: the answer and the END in one. KEPT: of the last frame, that the model keeps arrays of the arena, which must not be used
again. STAYS: of a REQUEST, that a next one may follow on its connection; of the last frame of an answer, that it is waited for there. All
numbers are little-endian.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

ALIGN = 64
PREFIX = struct.Struct("<BBHIQ")
LAST, ARENA, KEPT, STAYS = 1, 2, 4, 8

_FLAGS = LAST | ARENA | KEPT | STAYS
_MOST_HEAD = 1 << 30
_JOINED = 65_536
"""Bytes of a frame up to which it is copied together: that is cheaper than to send pieces."""
_PADDING = [bytes(count) for count in range(ALIGN)]

Buffer = bytes | memoryview


class BadFrame(Exception):
    """Bytes that are no frame."""


class TooLarge(BadFrame):
    """A frame that is larger than what is taken."""


class FrameKind(enum.IntEnum):
    """What a frame is. A request is answered by any number of ANSWERs and one END or ERROR."""

    REQUEST = 1
    ANSWER = 2
    END = 3
    ERROR = 4


REQUEST, ANSWER, END, ERROR = map(int, FrameKind)


class Prefix(NamedTuple):
    """What a frame's first 16 bytes say; sizes are in bytes."""

    kind: int
    flags: int
    head: int
    buffers: int

    @classmethod
    def read(cls, data: Buffer | bytearray, most: int) -> Prefix:
        """Read it. most: bytes of the head, and of the buffers, that are taken. Raises BadFrame."""
        kind, flags, zero, head, buffers = PREFIX.unpack_from(data)
        if zero or not 1 <= kind <= 4 or flags & ~_FLAGS:
            raise BadFrame(f"no frame begins with {bytes(data[:4]).hex()}")
        if head > most or head > _MOST_HEAD or buffers > most:
            raise TooLarge(f"a frame of {head + buffers} bytes is over the limit of {most}")
        return cls(kind, flags, head, buffers)


class Frame:
    """A frame to be sent. buffers: each is one array's bytes. size: theirs with the padding, also once they were let go of."""

    __slots__ = ("buffers", "head", "kind", "size")

    def __init__(self, kind: int, head: bytes, buffers: list[Buffer]) -> None:
        self.kind = kind
        self.head = head
        self.buffers = buffers
        size = 0
        for each in buffers:
            size += padded(len(each))
        self.size = size

    def inline(self, flags: int = 0) -> list[Buffer]:
        """The whole of it, in pieces that are sent one behind the other; a small one is one piece."""
        pieces: list[Buffer] = [PREFIX.pack(self.kind, flags, 0, len(self.head), self.size), self.head]
        for each in self.buffers:
            pieces.append(each)
            if len(each) % ALIGN:
                pieces.append(_PADDING[-len(each) % ALIGN])
        return pieces if self.size > _JOINED else [b"".join(pieces)]

    def whole(self, flags: int = 0) -> bytes:
        """The whole of it, copied."""
        return b"".join(self.inline(flags))

    def beside(self, flags: int = 0) -> bytes:
        """What is sent of it when its buffers are in an arena."""
        return PREFIX.pack(self.kind, flags | ARENA, 0, len(self.head), self.size) + self.head

    def copy_into(self, place: memoryview) -> None:
        """Put the buffers into memory, as they stand in a frame."""
        at = 0
        for each in self.buffers:
            place[at : at + len(each)] = each
            at += padded(len(each))


def padded(size: int) -> int:
    """The next multiple of ALIGN."""
    return -(-size // ALIGN) * ALIGN

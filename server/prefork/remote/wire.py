"""The frames that come in on a connection, without I/O, and what the kernel is asked to do for a frame that goes out.

What the kernel says of a Unix stream socket is part of the protocol: a peer that goes before it has read everything resets the
connection (ECONNRESET, EPIPE), so the model was never asked; one that goes later only ends it.
"""

from __future__ import annotations

import array
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from prefork.frames.layout import ALIGN, ARENA, PREFIX, Buffer, Prefix

FIRST = 65_536
"""Bytes that are asked for when a frame is expected: most frames come in one piece."""

MOST_PARTS = 512
"""Buffers of one sendmsg; the kernel takes 1024."""

_NOTHING = memoryview(b"")
_RIGHTS = (int(socket.SOL_SOCKET), int(socket.SCM_RIGHTS))


class Arrived(NamedTuple):
    """A frame that has come in whole. buffers: what stands behind the head; empty where that is in an arena."""

    prefix: Prefix
    head: Buffer
    buffers: memoryview


class Cut(Exception):
    """The peer has ended, between two frames or within one."""


class Incoming:
    """The frames of one direction. most: bytes of a frame's buffers.

    is_watched: for who waits on an event loop, whether the socket is known there.
    """

    __slots__ = ("_data", "_frame", "_most", "_places", "is_watched")

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = b""
        self._frame: Arrived | None = None
        self._places: list[memoryview] = []
        self.is_watched = False

    def next(self) -> Arrived | None:
        """The next frame, once all of it is there. Raises BadFrame and MemoryError."""
        if self._frame is None:
            return self._whole()
        if self._places:
            return None
        found, self._frame = self._frame, None
        return found

    @property
    def has_begun(self) -> bool:
        """Whether there is something of a next frame already."""
        return bool(self._data) or self._frame is not None

    @property
    def place(self) -> memoryview | None:
        """Where the next bytes have to go, for a frame that has begun; else any are taken by `feed`."""
        return self._places[0] if self._places else None

    def filled(self, count: int) -> None:
        """So many bytes were put into the place. Raises Cut when there were none."""
        if not count:
            raise Cut
        place = self._places[0]
        if count == place.nbytes:
            del self._places[0]
        else:
            self._places[0] = place[count:]

    def feed(self, data: bytes) -> None:
        """Bytes as they came. Raises Cut when there were none."""
        if not data:
            raise Cut
        self._data = self._data + data if self._data else data

    def _whole(self) -> Arrived | None:
        data = self._data
        if len(data) < PREFIX.size:
            return None
        prefix = Prefix.read(data, self._most)
        _, flags, head, size = prefix
        begin = PREFIX.size + head
        end = begin if flags & ARENA else begin + size
        if len(data) < end:
            self._begin(prefix, data, end - begin)
            return None
        self._data = b"" if len(data) == end else data[end:]
        buffers = memoryview(bytearray(data[begin:end])) if end > begin else _NOTHING  # writable, as arrays have to be
        return Arrived(prefix, data[PREFIX.size : begin], buffers)

    def _begin(self, prefix: Prefix, data: bytes, size: int) -> None:
        """Make room for the rest, so that it is received in its place."""
        head, body = memoryview(bytearray(prefix.head)), aligned(size)
        self._frame, self._data = Arrived(prefix, head, body), b""
        rest = memoryview(data)[PREFIX.size :]
        for place in (head, body):
            count = min(rest.nbytes, place.nbytes)
            place[:count] = rest[:count]
            rest = rest[count:]
            if count < place.nbytes:
                self._places.append(place[count:])


def receive(sock: socket.SocketType, incoming: Incoming, flags: int = 0) -> None:
    """What is there, or comes next. Raises Cut and OSError."""
    place = incoming.place
    if place is None:
        incoming.feed(sock.recv(FIRST, flags))
    else:
        incoming.filled(sock.recv_into(place, 0, flags))


def push(sock: socket.SocketType, parts: Sequence[Buffer], descriptor: int = -1) -> list[Buffer]:
    """Send as much as one call takes; what is left. The descriptor goes with the first byte. Raises OSError."""
    if descriptor < 0 and len(parts) == 1:
        sent = sock.send(parts[0])
        return [] if sent == len(parts[0]) else rest(parts, sent)
    return rest(parts, sock.sendmsg(parts[:MOST_PARTS], _ancillary(descriptor)))


def _ancillary(descriptor: int) -> list[tuple[int, int, Any]]:
    return [] if descriptor < 0 else [(*_RIGHTS, array.array("i", [descriptor]))]


def rest(parts: Sequence[Buffer], sent: int) -> list[Buffer]:
    """What is still to be sent, after so many bytes."""
    for at, part in enumerate(parts):
        size = len(part)
        if sent < size:
            return [memoryview(part)[sent:] if sent else part, *parts[at + 1 :]]
        sent -= size
    return []


def aligned(size: int) -> memoryview:
    """So many bytes of new memory, uninitialised, on a multiple of ALIGN."""
    room = np.empty(size + ALIGN, np.uint8)
    skip = -room.__array_interface__["data"][0] % ALIGN
    view: Any = room[skip : skip + size]
    return memoryview(view)

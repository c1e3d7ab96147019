"""One connection, seen from the model's process: the request that came, and the way back to who asked."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any

from prefork import standard
from prefork.errors import PayloadTooLarge, PreforkError
from prefork.frames.arena import Lease, Mapping, Mappings
from prefork.frames.codec import Asked, decode_request, encode_answer, encode_error
from prefork.frames.layout import (
    ARENA,
    END,
    KEPT,
    LAST,
    PREFIX,
    REQUEST,
    STAYS,
    BadFrame,
    Buffer,
    Frame,
    TooLarge,
    padded,
)
from prefork.payload import Payload
from prefork.remote import blocking, onloop
from prefork.remote.hangups import is_gone
from prefork.remote.wire import FIRST, Arrived, Cut, Incoming, push, receive

LARGE = 65_536
READ_SECONDS = 1.0
"""How long may be waited for a request in all: a worker sends what it has in memory. Later it is asked to send it again."""

_FRESH = 0.002
"""Seconds after which a request may be one that nobody waits for any more."""
_PATIENCE = 0.1
"""Seconds that another thread's send has to end before a connection is cut."""

_ANCILLARY = socket.CMSG_SPACE(4)
_DONTWAIT = int(socket.MSG_DONTWAIT)
_FIRST_FLAGS = _DONTWAIT | int(socket.MSG_CMSG_CLOEXEC)


class Peer:
    """A connection with a request. asked: that, once it was read. most: bytes of its tensors.

    stays: whether the connection waits for a next one, now that it is answered.

    What ends in `_async` wants a socket that does not block, and the other ways to answer one that does.
    """

    __slots__ = (
        "_incoming",
        "_is_begun",
        "_lease",
        "_mapping",
        "_mappings",
        "_may_stay",
        "_room",
        "_sending",
        "asked",
        "sock",
        "stays",
    )

    def __init__(self, sock: socket.SocketType, mappings: Mappings, most: int) -> None:
        self.sock = sock
        self.asked: Asked | None = None
        self.stays = False
        self._mappings = mappings
        self._incoming = Incoming(most)
        self._mapping: Mapping | None = None
        self._lease: Lease | None = None
        self._room = 0
        self._is_begun = False
        self._may_stay = False
        self._sending = threading.Lock()

    # --- the request ---

    def read(self) -> bool:
        """Read the request; whether there is one. What is none is answered, or dropped, here."""
        try:
            if self.looks():
                return True
            until = time.monotonic() + READ_SECONDS
            while self._wait(until - time.monotonic()):
                if self.looks():
                    return True
        except (OSError, Cut):
            pass
        return self.close()

    async def read_async(self) -> bool:
        """As `read`, on the running event loop."""
        readiness = onloop.readiness()
        late = readiness.loop.call_later(READ_SECONDS, self._cut)
        try:
            while self.sock.fileno() >= 0:
                again, self._incoming.is_watched = self._incoming.is_watched, True
                await readiness.readable(self.sock.fileno(), again=again)
                if self.looks():
                    return True
        except (OSError, Cut):
            pass
        finally:
            late.cancel()
        return self.close()

    def looks(self) -> bool:
        """Take what is there, without waiting; whether the request is whole. Raises Cut, and OSError for one that is not to be."""
        try:
            while (frame := self._incoming.next()) is None:
                self._receive()
            self.asked = self._decoded(frame)
        except BlockingIOError:
            return False
        except TooLarge as error:
            self.fail(PayloadTooLarge(f"the request is too large for the model's process: {error}"))
            raise Cut from None
        except (BadFrame, ValueError, MemoryError) as error:
            self.fail(PreforkError(f"the request between the processes cannot be read: {error}"))
            raise Cut from None
        payload = self.asked.payload
        payload.cancelled = self.is_gone
        payload.deadline = self.asked.deadline
        return True

    @property
    def is_late(self) -> bool:
        """Whether the time for the request is up."""
        assert self.asked is not None
        return time.monotonic() >= self.asked.deadline

    @property
    def is_left(self) -> bool:
        """Whether the other side has hung up while the request waited."""
        assert self.asked is not None
        return time.monotonic() - self.asked.sent > _FRESH and self.is_gone()

    def is_gone(self) -> bool:
        """Whether the other side has hung up."""
        return is_gone(self.sock)

    def _wait(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return seconds > 0 and bool(poll.poll(seconds * 1000))

    def _cut(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def _receive(self) -> None:
        if self._is_begun:
            receive(self.sock, self._incoming, _DONTWAIT)
            return
        # The first bytes may bring a descriptor along.
        data, ancillary, _, _ = self.sock.recvmsg(FIRST, _ANCILLARY, _FIRST_FLAGS)
        self._is_begun = True
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(content) >= 4:
                self._map(standard.above(struct.unpack("i", content[:4])[0]))
        self._incoming.feed(data)

    def _map(self, descriptor: int) -> None:
        try:
            self._mapping = self._mappings.of(descriptor)
        except (OSError, ValueError) as error:
            raise BadFrame(f"the descriptor is no arena: {error}") from None

    def _decoded(self, frame: Arrived) -> Asked:
        if frame.prefix.kind != REQUEST:
            raise BadFrame("this is no request")
        self._may_stay = bool(frame.prefix.flags & STAYS)
        return decode_request(frame.head, self._buffers(frame))

    def _buffers(self, frame: Arrived) -> memoryview:
        if not frame.prefix.flags & ARENA:
            return frame.buffers
        if self._mapping is None or frame.prefix.buffers > self._mapping.size:
            raise BadFrame("the arena is not there, or too small")
        self._room = padded(frame.prefix.buffers)
        self._lease = self._mapping.lend()
        view = self._lease.view[: frame.prefix.buffers]
        self._lease.end()
        return view

    # --- the answers ---

    def part(self, answer: Payload) -> None:
        """Send one of several answers. Raises OSError when the other side has gone, and BadAnswer."""
        parts = encode_answer(answer).inline()
        answer.value = None
        with self._sending:
            blocking.send(self.sock, parts)

    async def part_async(self, frame: bytes) -> None:
        """Send the frame of one of several, on the running event loop. Raises OSError."""
        await onloop.send(self.sock, [frame])

    def only(self, answer: Payload, *, stays: bool = False) -> None:
        """Send the only answer, and with that the end, of the connection too unless it stays. Raises BadAnswer."""
        self._send_last(self._only(answer, stays=stays))

    async def only_async(self, answer: Payload, *, stays: bool = False) -> None:
        """As `only`, on the running event loop."""
        await self._send_last_async(self._only(answer, stays=stays))

    def end(self) -> None:
        """Nothing more comes."""
        self._send_last([self._end()])

    async def end_async(self) -> None:
        """As `end`, on the running event loop."""
        await self._send_last_async([self._end()])

    def fail(self, error: PreforkError) -> None:
        """The error instead of an answer, or behind several."""
        self._send_last([encode_error(error).whole(self._kept())])

    async def fail_async(self, error: PreforkError) -> None:
        """As `fail`, on the running event loop."""
        await self._send_last_async([encode_error(error).whole(self._kept())])

    def interrupt(self, error: PreforkError) -> None:
        """From another thread than that which serves it: end it with an error, behind whatever is being sent."""
        is_quiet = self._sending.acquire(timeout=_PATIENCE)
        with suppress(OSError):
            if is_quiet:
                self.sock.send(encode_error(error).whole(KEPT), _DONTWAIT)
            self.sock.shutdown(socket.SHUT_RDWR)
        if is_quiet:
            self._sending.release()

    def close(self) -> bool:
        """Let go of everything; False."""
        self.sock.close()
        self._kept(is_over=False)
        return False

    def _only(self, answer: Payload, *, stays: bool) -> list[Buffer]:
        stays = stays and self._may_stay and not self._incoming.has_begun
        parts = self._last(answer, LAST | STAYS if stays else LAST)
        self.stays = stays
        return parts

    def _last(self, answer: Payload, flags: int = LAST) -> list[Buffer]:
        """The only answer's pieces, once nobody but the user's own code holds anything of the request."""
        assert self.asked is not None
        frame = encode_answer(answer, self.asked.payload.meta)
        answer.value = None
        if self._mapping is None:
            self._kept()
            return frame.inline(flags)
        return [self._beside(frame, flags)] if frame.size > LARGE else [_copied(frame, flags, self._kept)]

    def _beside(self, frame: Frame, flags: int) -> bytes:
        assert self._mapping is not None
        self._mapping.write(frame, self._room)
        frame.buffers.clear()
        return frame.beside(flags | self._kept())

    def _end(self) -> bytes:
        return PREFIX.pack(END, self._kept(), 0, 0, 0)

    def _send_last(self, parts: list[Buffer]) -> None:
        with self._sending:
            try:
                while parts:
                    parts = push(self.sock, parts)
            except OSError:
                self.stays = False
        if not self.stays:
            self.sock.close()

    async def _send_last_async(self, parts: list[Buffer]) -> None:
        try:
            await onloop.send(self.sock, parts)
        except OSError:
            self.stays = False
        if not self.stays:
            self.sock.close()

    def _kept(self, *, is_over: bool = True) -> int:
        """Let go of the request: KEPT if that leaves arrays of its arena. is_over: whether the other side uses that again."""
        asked, self.asked = self.asked, None
        if asked is not None:
            payload = asked.payload
            payload.value = payload.message = payload.again = None
        lease, self._lease = self._lease, None
        mapping, self._mapping = self._mapping, None
        kept = lease is not None and not lease.is_over
        if mapping is not None:
            self._mappings.release(mapping, keep=is_over and not kept)
        return KEPT if kept else 0


def _copied(frame: Frame, flags: int, kept: Any) -> bytes:
    """A small answer, which is copied before it is known whether arrays are left: it may itself be one of the request's."""
    data = frame.whole()
    frame.buffers.clear()
    return data[:1] + bytes([flags | kept()]) + data[2:]

"""One request on its way to a model's process, and the answers that come back, whatever waits for them."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from contextlib import suppress
from typing import Any, NoReturn, cast

from prefork.errors import PreforkError
from prefork.frames.arena import Arena, Arenas
from prefork.frames.codec import decode_answer, decode_error
from prefork.frames.layout import ANSWER, ARENA, END, ERROR, KEPT, LAST, STAYS, BadFrame, Buffer, Frame
from prefork.payload import Payload
from prefork.remote import blocking, onloop
from prefork.remote.wire import Arrived, Cut, Incoming, push, receive

LARGE = 65_536
"""Bytes of buffers from which on an arena is cheaper than the socket."""


UNHEARD = (BrokenPipeError, ConnectionResetError)
"""What a side hears that sends to one which has gone before it has read everything."""


class Died(Exception):
    """The process that had the request is gone, or says what nobody understands."""


class Talk:
    """A request, and the arena that it lends. tries: how often it was begun with. is_over: whether all answers came.

    may_stay: whether a next request can follow on its connection. stays: whether the other side waits for that, now that this one is
    over.

    It is prepared before there is a connection: that wakes the other side, which then finds the request there.
    """

    __slots__ = (
        "_arena",
        "_arenas",
        "_descriptor",
        "_flags",
        "_frame",
        "_most",
        "_parts",
        "_request",
        "has_answered",
        "incoming",
        "is_over",
        "stays",
        "tries",
    )

    def __init__(self, frame: Frame, request: Payload, arenas: Arenas, most: int, *, may_stay: bool = False) -> None:
        self._frame = frame
        self._flags = STAYS if may_stay else 0
        self._request = request
        self._arenas = arenas
        self._most = most
        self._arena: Arena | None = None
        self._descriptor = -1
        self._parts: list[Buffer] = []
        self.incoming = Incoming(most)
        self.tries = 1
        self.is_over = self.stays = False
        self.has_answered = False

    def prepare(self) -> None:
        """Put the request where the other side will find it."""
        frame, arenas, self._descriptor = self._frame, self._arenas, -1
        is_large = frame.size > LARGE
        if not (is_large or arenas.expects):
            self._parts = frame.inline(self._flags)
            return
        arena = self._arena = arenas.take(frame.size if is_large else 0)
        if arena is not None:
            self._descriptor = arena.descriptor
        if arena is None or not is_large:
            self._parts = frame.inline(self._flags)
            return
        lease = arena.lend()
        frame.copy_into(lease.view)
        lease.end()
        self._parts = [frame.beside(self._flags)]

    def put_back(self) -> None:
        """There was no connection: nobody has seen the request."""
        arena, self._arena = self._arena, None
        if arena is not None:
            self._arenas.give_back(arena)

    def again(self) -> None:
        """Begin once more, on another connection."""
        self.tries += 1
        self.afresh()

    def afresh(self) -> None:
        """As `again`, by our own will."""
        self.incoming = Incoming(self._most)

    def send(self, sock: socket.SocketType) -> None:
        """Send the request, on a blocking socket. Raises OSError."""
        try:
            blocking.send(sock, self._parts, self._descriptor)
        except UNHEARD:
            self._hear(sock)

    def begin(self, sock: socket.SocketType) -> bool:
        """Send what a non-blocking socket takes at once; whether that is all. Raises OSError."""
        try:
            self._parts, self._descriptor = push(sock, self._parts, self._descriptor), -1
        except BlockingIOError:
            return False
        except UNHEARD:
            self._hear(sock)
        return not self._parts

    async def send_async(self, sock: socket.SocketType) -> None:
        """Send what is left of it. Raises OSError."""
        try:
            await onloop.send(sock, self._parts, self._descriptor)
        except UNHEARD:
            self._hear(sock)

    def took(self, frame: Arrived) -> Payload | None:
        """The answer that a frame is; None for the end. Raises the error that it is, and Died."""
        kind, flags, _, size = frame.prefix
        if kind == ANSWER:
            answer = self._answer(frame)
            self.has_answered = True
            self._arenas.expects = size > LARGE
            if flags & LAST:
                self._settle(flags)
            return answer
        self._settle(flags)
        if kind == END:
            return None
        if kind == ERROR:
            error = decode_error(frame.head)
            error.is_logged = True
            raise error
        raise Died

    def leave(self, sock: socket.SocketType, request: Payload) -> None:
        """The connection is done with; a request that is given up is told whether the model had begun."""
        self.end(sock, request)
        sock.close()

    def end(self, sock: socket.SocketType, request: Payload) -> None:
        """As `leave`, of a connection that somebody else closes."""
        if not self.is_over:
            request.begun = was_read(sock)
        if self._arena is not None:
            self._arenas.drop(self._arena)  # the other side may still be writing there
            self._arena = None

    def _hear(self, sock: socket.SocketType) -> NoReturn:
        """The other side took no more of the request: it may have said why. Raises that, or ConnectionResetError."""
        sock.settimeout(0.0)
        try:
            while (frame := self.incoming.next()) is None:
                receive(sock, self.incoming)
        except (Cut, OSError):
            raise ConnectionResetError from None
        self.took(frame)
        raise Died

    def _answer(self, frame: Arrived) -> Payload:
        try:
            payload, meta = decode_answer(frame.head, self._buffers(frame))
        except BadFrame as error:
            raise PreforkError(f"the model's process sent what is no answer: {error}") from None
        if meta is not None:
            self._request.meta = meta
        return payload

    def _buffers(self, frame: Arrived) -> memoryview:
        if not frame.prefix.flags & ARENA:
            return frame.buffers
        if self._arena is None:
            raise BadFrame("there is no arena")
        self._arena.follow()
        begin = self._frame.size if self._frame.size > LARGE else 0
        lease = self._arena.lend()
        found = lease.view[begin : begin + frame.prefix.buffers]
        lease.end()
        return found

    def _settle(self, flags: int) -> None:
        self.is_over = True
        self.stays = bool(flags & STAYS) and not self.incoming.has_begun
        arena, self._arena = self._arena, None
        if arena is None:
            return
        if flags & KEPT:
            self._arenas.drop(arena)
        else:
            self._arenas.give_back(arena)


def was_read(sock: socket.SocketType) -> bool:
    """Whether the other side has read all that was sent, so that the model has the request."""
    with suppress(OSError):
        (left,) = struct.unpack("i", cast("Any", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4))))
        return not left
    return True

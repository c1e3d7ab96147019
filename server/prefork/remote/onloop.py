"""Frames on a non-blocking socket, waiting on an event loop.

A loop sees one descriptor for all sockets that are read: an epoll of their own. To have the loop itself watch a socket, and
forget it, costs more than all the rest of a small request.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Sequence

from prefork.frames.layout import Buffer
from prefork.remote.wire import Arrived, Incoming, push, receive

_READ = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT


class Readiness:
    """Tells one loop's tasks when their sockets can be read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._poll = select.epoll()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self._poll.fileno(), self._look)

    def readable(self, descriptor: int, *, again: bool) -> asyncio.Future[None]:
        """Done when there is something to be read, or perhaps is. again: whether it was waited for on this connection before."""
        future = self._waiting[descriptor] = self.loop.create_future()
        # A descriptor that is closed is forgotten by the kernel.
        try:
            (self._poll.modify if again else self._poll.register)(descriptor, _READ)
        except FileExistsError:  # from a request before this one on the same connection
            self._poll.modify(descriptor, _READ)
        return future

    def _look(self) -> None:
        for descriptor, _ in self._poll.poll(0):
            future = self._waiting.pop(descriptor, None)
            if future is not None and not future.done():
                future.set_result(None)


class _Here(threading.local):
    readiness: Readiness | None = None


_here = _Here()


def readiness() -> Readiness:
    """That of the running loop."""
    loop = asyncio.get_running_loop()
    found = _here.readiness
    if found is None or found.loop is not loop:
        found = _here.readiness = Readiness(loop)
    return found


async def frame(sock: socket.SocketType, incoming: Incoming) -> Arrived:
    """The next frame. Raises Cut, BadFrame and OSError."""
    while (found := incoming.next()) is None:
        again, incoming.is_watched = incoming.is_watched, True
        await readiness().readable(sock.fileno(), again=again)
        try:
            receive(sock, incoming)
        except BlockingIOError:
            continue
    return found


async def send(sock: socket.SocketType, parts: Sequence[Buffer], descriptor: int = -1) -> None:
    """All of it. Raises OSError."""
    while parts:
        try:
            parts, descriptor = push(sock, parts, descriptor), -1
        except BlockingIOError:
            await _until_written(sock)


async def _until_written(sock: socket.SocketType) -> None:
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    loop.add_writer(sock.fileno(), _wake, woken)
    try:
        await woken
    finally:
        loop.remove_writer(sock.fileno())


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)

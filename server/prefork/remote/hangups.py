"""Tells an event loop which of many connections were hung up."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable

_GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLONESHOT


class Hangups:
    """Of one loop. The connections are in an epoll of their own, which is all that the loop has to watch."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._poll = select.epoll()
        self._watched: dict[int, tuple[socket.SocketType, Callable[[], object]]] = {}
        loop.add_reader(self._poll.fileno(), self._look)

    def watch(self, sock: socket.SocketType, when_gone: Callable[[], object], *, again: bool = False) -> int:
        """Have that called, once, when the other side of the connection goes. The number is for `forget`.

        again: whether the connection was watched here before, and has stayed open since.
        """
        descriptor = sock.fileno()
        if descriptor >= 0:
            self._watched[descriptor] = (sock, when_gone)
            (self._poll.modify if again else self._poll.register)(descriptor, _GONE)
        return descriptor

    def forget(self, descriptor: int) -> None:
        """Of a connection that is closed, which the kernel has forgotten by itself, or that waits for its next request."""
        self._watched.pop(descriptor, None)

    def _look(self) -> None:
        for descriptor, _ in self._poll.poll(0):
            found = self._watched.get(descriptor)
            # A child that the model has forked keeps connections open whose numbers are used again.
            if found is not None and is_gone(found[0]):
                del self._watched[descriptor]
                found[1]()


def is_gone(sock: socket.SocketType) -> bool:
    """Whether the other side of a connection has hung up, or this one is closed."""
    poll = select.poll()
    try:
        poll.register(sock, select.POLLRDHUP)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True

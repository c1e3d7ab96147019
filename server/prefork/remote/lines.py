"""Connections on an event loop that stay when their request is answered, so that the next one needs none of its own.

The loop watches them from then on, also while nothing is asked: one that the other side closes is given up at once.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from prefork.remote import onloop
from prefork.remote.wire import Arrived, Cut, Incoming, receive

MOST_WAITING = 64
"""Connections that a worker keeps while nothing is asked on them, to all models together; each is a descriptor."""


class Line:
    """A connection to a model's process, for one request at a time. place: what it leads to."""

    __slots__ = ("_incoming", "_lines", "_waiter", "is_waiting", "loop", "place", "sock")

    def __init__(self, sock: socket.SocketType, place: str) -> None:
        self.sock = sock
        self.place = place
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_waiting = False
        self._lines: Lines | None = None
        self._incoming: Incoming | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def frame(self, incoming: Incoming) -> Arrived:
        """The next frame. Raises Cut, BadFrame and OSError."""
        if self.loop is None:
            return await onloop.frame(self.sock, incoming)
        self._incoming = incoming
        while (found := incoming.next()) is None:
            waiter = self._waiter = self.loop.create_future()
            await waiter
        return found

    def wait(self, lines: Lines) -> None:
        """Nothing is asked until `lines` have it taken."""
        self._incoming = self._waiter = None
        self.is_waiting = True
        if self.loop is None:
            self.loop, self._lines = asyncio.get_running_loop(), lines
            self.loop.add_reader(self.sock.fileno(), self._look)

    def close(self) -> None:
        """Hang up."""
        if self.loop is not None and self.sock.fileno() >= 0:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.remove_reader(self.sock.fileno())
        self.sock.close()

    def _look(self) -> None:
        waiter = self._waiter
        if self.is_waiting:  # nothing is asked, so this is the end of it
            assert self._lines is not None
            self._lines.drop(self)
        elif waiter is not None and not waiter.done():
            assert self._incoming is not None
            try:
                receive(self.sock, self._incoming)
            except BlockingIOError:
                return
            except (Cut, OSError) as error:
                waiter.set_exception(error)
            else:
                waiter.set_result(None)


class Lines:
    """The connections on which nothing is asked. Of those to one place, that which was used last is used first."""

    def __init__(self) -> None:
        self._waiting: dict[Line, None] = {}
        self._places: dict[str, list[Line]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, place: str) -> Line | None:
        """One that leads there, if there is any, of the running loop's."""
        there = self._places.get(place)
        while there:
            line = there[-1]
            self._forget(line)
            if line.loop is asyncio.get_running_loop():
                return line
            line.close()
        return None

    def keep(self, line: Line) -> None:
        """It waits; when there are too many, that which was used longest ago is closed."""
        line.wait(self)
        self._waiting[line] = None
        self._places.setdefault(line.place, []).append(line)
        if len(self._waiting) > MOST_WAITING:
            self.drop(next(iter(self._waiting)))

    def drop(self, line: Line) -> None:
        """Close one that waits."""
        self._forget(line)
        line.close()

    def leave(self, place: str) -> None:
        """Close all that lead there."""
        for line in tuple(self._places.get(place, ())):
            self.drop(line)

    def _forget(self, line: Line) -> None:
        line.is_waiting = False
        del self._waiting[line]
        there = self._places[line.place]
        there.remove(line)
        if not there:
            del self._places[line.place]

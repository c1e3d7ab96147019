"""The ASGI worker: gunicorn's, with shared accepting, and prompt to leave.

Its connections are counted on the board from the moment at which they are accepted.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
from copy import copy
from typing import Any

from gunicorn.workers.gasgi import ASGIWorker

from prefork.processes.acceptor import Acceptor
from prefork.processes.balance import Gate
from prefork.processes.connection import FIRST_REQUEST, Connection
from prefork.processes.worker import LINGER, Serving

_TICK = 1.0
_NEVER = 10**6
_GLANCE = 0.02
"""Seconds between two looks at what is left while the worker leaves."""

_FAREWELL = 0.5
"""Seconds in which clients are told that their streams end here."""


class AsgiWorker(Serving, ASGIWorker):
    """Serves an ASGI application on uvloop, or on asyncio where there is none."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._connections: set[Connection] = set()
        self._arriving: set[asyncio.Task[None]] = set()
        self._acceptors: list[Acceptor] = []
        self._left: asyncio.Future[None] | None = None
        self._early: list[int] = []

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        """Nothing: threads are model threads here."""

    def adopt(self, connection: Connection) -> None:
        """Count a connection."""
        self._connections.add(connection)
        self.slot.connections = len(self._connections)

    def forget(self, connection: Connection) -> None:
        """Stop counting a connection; more than once does no harm."""
        self._connections.discard(connection)
        self.slot.connections = len(self._connections)
        self.slot.turn()
        for acceptor in self._acceptors:
            acceptor.nudge()

    def handle_exit_signal(self) -> None:
        """TERM: leave, and finish what is in flight."""
        super().handle_exit_signal()
        self._leave()

    def handle_quit_signal(self) -> None:
        """QUIT or INT: leave at once."""
        super().handle_quit_signal()
        self._leave()

    def take_signals(self) -> None:
        """Keep those to stop until the loop runs: uvloop loses what comes before."""
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(each, lambda number, _frame: self._early.append(number))

    async def _serve(self) -> None:
        self._left = self.loop.create_future()
        super().take_signals()
        for number in self._early:
            (self.handle_exit_signal if number == signal.SIGTERM else self.handle_quit_signal)()
        self._ssl = self._get_ssl_context()
        self.reading_cfg = _for_reading(self.cfg, self.app.settings.read_timeout)
        gate = Gate(self.slot, is_shared=not self.cfg.reuse_port)
        self._acceptors = [Acceptor(self.loop, each, self.slot, gate, self._admit) for each in self.sockets]
        for acceptor in self._acceptors:
            acceptor.open()
        self._tick()
        await self._left
        await self._shutdown()

    def _leave(self) -> None:
        if self._left is not None and not self._left.done():
            self._left.set_result(None)

    def _tick(self) -> None:
        if not self.alive or os.getppid() != self.ppid:
            self._leave()
            return
        self.notify()
        self.slot.turn()
        self._close_idle(self.cfg.keepalive or FIRST_REQUEST)
        self._close_slow()
        self.loop.call_later(min(_TICK, (self.cfg.timeout or _TICK) / 3), self._tick)

    def _close_idle(self, seconds: float) -> None:
        since = self.loop.time() - seconds
        for connection in tuple(self._connections):
            connection.close_if_idle(since)

    def _close_slow(self) -> None:
        seconds = self.app.settings.read_timeout
        for connection in tuple(self._connections) if seconds else ():
            connection.close_if_slow(self.loop.time() - seconds)

    def _admit(self, client: socket.socket) -> None:
        task = self.loop.create_task(self._connect(Connection(self), client))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _connect(self, connection: Connection, client: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: connection, client, ssl=self._ssl)
        except Exception as error:  # noqa: BLE001 - a TLS handshake fails in many ways, all of them the client's
            self.log.debug("a connection was not made: %s", error)
        finally:
            if connection.transport is None:
                client.close()
                self.forget(connection)

    async def _shutdown(self) -> None:
        self.alive = False
        take_rest = self.drain() and not self._quick_shutdown
        for acceptor, each in zip(self._acceptors, self.sockets, strict=True):
            acceptor.close(take_rest=take_rest)
            each.close()
        deadline = self.loop.time() + self.app.settings.graceful_timeout
        lingered = self.loop.time() + LINGER
        while self._connections and not self._quick_shutdown and self.loop.time() < deadline:
            self.notify()
            self._close_idle(LINGER)
            if self.loop.time() > lingered:
                self._abandon_arrivals()
            await asyncio.sleep(_GLANCE)
        if not self._quick_shutdown and self.front.end_streams():
            until = self.loop.time() + _FAREWELL
            while self._connections and self.loop.time() < until:
                self.notify()
                await asyncio.sleep(_GLANCE)
        if self._connections and not self._quick_shutdown:
            self.log.warning("graceful_timeout is over; connections that are cut off: %d", len(self._connections))

    def _abandon_arrivals(self) -> None:
        for task in self._arriving:
            task.cancel()


def _for_reading(cfg: Any, seconds: float) -> Any:
    """The configuration of connections, whose `timeout` is how long gunicorn waits for the next piece of a body."""
    reading = copy(cfg)
    reading.settings = {**cfg.settings, "timeout": copy(cfg.settings["timeout"])}
    reading.set("timeout", math.ceil(seconds) or _NEVER)  # to gunicorn 0 is 30
    return reading

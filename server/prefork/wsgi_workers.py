"""The sync and the gthread worker: gunicorn's, but no client holds them up by saying nothing.

gthread keeps connections, so it shares them as the ASGI worker does. The sync worker closes each after its answer and
accepts only when it is free, which is as even as can be.
"""

from __future__ import annotations

import select
import selectors
import socket
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

from gunicorn.workers import gthread, sync

from prefork import balance
from prefork.listener import waiting
from prefork.worker import LINGER, Serving

_SILENCE = 5.0
"""Seconds within which a new connection has to say something."""

_HOLD = 0.001
_GLANCE = 0.05
"""Seconds between two looks at what is left while the worker leaves."""

_FAREWELL = 2.0
"""Seconds that a client has to close its end after the last answer."""


class SyncWorker(Serving, sync.SyncWorker):
    """One request at a time."""

    def handle(self, listener: Any, client: socket.socket, addr: Any) -> None:
        """Serve one connection, once it says something."""
        if self._speaks(client):
            super().handle(listener, client, addr)
        else:
            client.close()

    def finish(self) -> None:
        """When the whole server stops, serve those whom nobody has accepted yet."""
        take_rest = self.drain()
        rest = [each for listener in self.sockets for each in _accepted(listener)] if take_rest else []
        for listener in self.sockets:
            listener.close()
        deadline = time.monotonic() + self.app.settings.graceful_timeout
        for client, addr in rest:
            if time.monotonic() < deadline:
                self.notify()
                self.handle(client, client, addr)

    def _speaks(self, client: socket.socket) -> bool:
        poll = select.poll()
        poll.register(client, select.POLLIN)
        until = time.monotonic() + _SILENCE
        while not poll.poll(LINGER * 1000):
            self.notify()
            if not self.alive or time.monotonic() >= until:
                return False
        return True


def _accepted(listener: Any) -> list[tuple[socket.socket, Any]]:
    taken = []
    with suppress(BlockingIOError):
        while True:
            client, addr = listener.accept()
            client.settimeout(None)
            taken.append((client, addr))
    return taken


class _Talk(gthread.TConn):
    """A connection of the thread worker, which never waits for its client on the worker's main thread."""

    worker: ThreadWorker

    def close(self, graceful: bool = False) -> None:  # noqa: FBT001, FBT002 - gunicorn's signature
        if graceful:
            self.worker.part(self.sock)
        else:
            super().close()


class ThreadWorker(Serving, gthread.ThreadWorker):
    """One request a thread."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._gate = balance.Gate(self.slot)
        self._holding = False
        self._parting: deque[tuple[float, socket.socket]] = deque()

    def accept(self, listener: Any) -> None:
        """Accept a connection if it is this worker's turn."""
        self.slot.turn()
        if self._gate.may_accept():
            self._take(listener)
        else:
            self._holding = True
            super().set_accept_enabled(False)

    def set_accept_enabled(self, enabled: bool) -> None:  # noqa: FBT001 - gunicorn's signature
        """Accept or not, for reasons other than whose turn it is."""
        if not self.alive:
            self._end_accepting()
            return
        (self.slot.say if enabled else self.slot.unsay)(balance.ACCEPTING)
        super().set_accept_enabled(enabled and not self._holding)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Wait for events, for a moment only while this worker holds back from accepting."""
        if not self.alive:
            timeout = min(timeout, _GLANCE)
        super().wait_for_and_dispatch_events(_HOLD if self._holding else timeout)
        self.slot.connections = self.nr_conns
        if self._holding and self.alive:
            self._look()

    def murder_pending(self) -> None:
        """Close what has been silent for too long."""
        super().murder_pending()
        while self._parting and self._parting[0][0] <= time.monotonic():
            self._close_parted(self._parting[0][1])

    def part(self, client: socket.socket) -> None:
        """Close a connection once its client has: to close before could take the answer away from it."""
        try:
            client.shutdown(socket.SHUT_WR)
            client.settimeout(0.0)
            self.poller.register(client, selectors.EVENT_READ, self._hear_out)
        except (OSError, ValueError, KeyError):
            client.close()
        else:
            self._parting.append((time.monotonic() + _FAREWELL, client))

    def _take(self, listener: Any) -> bool:
        try:
            client, addr = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        self.nr_conns += 1
        self.slot.connections = self.nr_conns
        talk = _Talk(self.cfg, client, addr, listener.getsockname())
        talk.worker = self
        # A thread is taken only for a client that says something; gunicorn gives each new one a thread to wait on.
        talk.timeout = time.monotonic() + max(self.cfg.keepalive, _SILENCE)
        self.pending_conns.append(talk)
        self.poller.register(client, selectors.EVENT_READ, partial(self.on_pending_socket_readable, talk))
        return True

    def _look(self) -> None:
        self.slot.turn()
        comes = [each for each in self.sockets if waiting(each)]
        if comes and not self._gate.may_accept():
            return
        self._holding = False
        self.set_accept_enabled(True)
        if comes:
            self._take(comes[0])
        else:
            self._gate.calm()

    def _end_accepting(self) -> None:
        super().set_accept_enabled(False)
        take_rest = self.drain()
        for listener in self.sockets:
            while take_rest and listener.sock is not None and self._take(listener):
                pass
            listener.close()

    def _cap_keepalive(self, deadline: float) -> None:
        # A connection's `timeout` is the end of its keepalive, so this is LINGER after its last answer.
        for conn in self.keepalived_conns:
            conn.timeout = min(conn.timeout, deadline, conn.timeout - self.cfg.keepalive + LINGER)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, time.monotonic() + LINGER)

    def _hear_out(self, client: socket.socket) -> None:
        try:
            if client.recv(65536):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close_parted(client)

    def _close_parted(self, client: socket.socket) -> None:
        self._parting = deque(each for each in self._parting if each[1] is not client)
        with suppress(KeyError, ValueError):
            self.poller.unregister(client)
        client.close()

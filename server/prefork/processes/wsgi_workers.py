"""The sync and the gthread worker: gunicorn's, but no client holds them up by saying nothing.

gthread keeps connections, so it shares them as the ASGI worker does. The sync worker closes each after its answer and
accepts only when it is free, which is as even as can be.
"""

from __future__ import annotations

import select
import selectors
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

from gunicorn.workers import gthread, sync

from prefork import deadlines
from prefork.processes import balance, refusal
from prefork.processes.arrival import LOOK, needed
from prefork.processes.guest import Guest, has_gone, received_by
from prefork.processes.listener import waiting
from prefork.processes.worker import LINGER, Serving

_SILENCE = 5.0
"""Seconds within which a new connection has to say something."""

_HOLD = 0.001
_GLANCE = 0.05
"""Seconds between two looks at what is left while the worker leaves."""

_NEVER = 1e9
_END = b"\n\n"
"""Stands for the end of the connection, which a thread has to find out about."""

_FAREWELL = 2.0
"""Seconds that a client has to close its end after the last answer."""


class SyncWorker(Serving, sync.SyncWorker):
    """One request at a time."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rest: list[tuple[socket.socket, Any]] = []
        self._parting: deque[tuple[float, socket.socket]] = deque()

    def load_wsgi(self) -> None:
        """Load the model."""
        super().load_wsgi()
        self.wsgi = received_by(self.wsgi, self.slot.board)

    def accept(self, listener: Any) -> None:
        """Serve the next connection."""
        try:
            super().accept(listener)
        except OSError:
            if self.alive:  # else the listener may have been closed under it
                raise

    def wait(self, timeout: float) -> Any:
        """Wait for a connection; close meanwhile those whose clients have had their time."""
        self._part_all()
        try:
            return super().wait(min(timeout, _FAREWELL) if self._parting else timeout)
        except ValueError:  # of a listener that was closed under it
            if self.alive:
                raise
            raise sync.StopWaiting from None

    def handle_exit(self, sig: Any, frame: Any) -> None:
        """TERM: accept nobody any more, from this moment on, whatever the model is about."""
        super().handle_exit(sig, frame)
        take_rest = self.drain()
        for listener in self.sockets:
            if listener.sock is not None:
                self._rest += _accepted(listener) if take_rest else []
                listener.sock.close()

    def handle(self, listener: Any, client: socket.socket, addr: Any) -> None:  # noqa: ARG002 - gunicorn calls it so
        """Serve one connection, once it says something."""
        if self._speaks(client):
            guest = client if self.cfg.is_ssl else Guest(client, self.app.settings.read_timeout, self._part)
            # It is only asked for its own address, which the listener may have lost by then: see `handle_exit`.
            super().handle(client, guest, addr)
        else:
            client.close()

    def finish(self) -> None:
        """When the whole server stops, serve those whom nobody has accepted yet; first those who have said something."""
        deadline = time.monotonic() + self.app.settings.graceful_timeout
        lingered = time.monotonic() + LINGER
        waiting = {client.fileno(): (client, addr) for client, addr in self._rest}
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        while waiting and (left := min(lingered, deadline) - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left * 1000):
                client, addr = waiting.pop(descriptor)
                poll.unregister(descriptor)
                self.notify()
                self.handle(client, client, addr)
                lingered = max(lingered, time.monotonic() + _GLANCE)
        for client, _ in waiting.values():
            client.close()
        self._part_all(time.monotonic() + _FAREWELL)

    def _part(self, client: socket.socket) -> None:
        client.settimeout(0.0)
        self._parting.append((time.monotonic() + _FAREWELL, client))
        self._part_all()

    def _part_all(self, now: float | None = None) -> None:
        """Close those connections whose client has closed, or has had FAREWELL."""
        now = now or time.monotonic()
        self._parting = deque(
            (until, client) for until, client in self._parting if not _has_parted(client, until <= now)
        )

    def _speaks(self, client: socket.socket) -> bool:
        poll = select.poll()
        poll.register(client, select.POLLIN)
        until = time.monotonic() + min(_SILENCE, self.app.settings.read_timeout or _SILENCE)
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


def _has_parted(client: socket.socket, is_late: bool) -> bool:  # noqa: FBT001 - the one thing that is asked
    """Whether the client has closed its end, or has to be taken as if it had; then the socket is closed."""
    try:
        while not is_late and client.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    client.close()
    return True


class _Talk(gthread.TConn):
    """A connection of the thread worker, which never waits for its client on the worker's main thread."""

    worker: ThreadWorker
    guest: Guest | None = None
    queued = 0.0
    idle_since = 0.0

    def set_timeout(self) -> None:
        super().set_timeout()
        self.idle_since = time.monotonic()

    def init(self) -> None:
        is_new = not self.initialized
        super().init()
        unreader = getattr(self.parser, "unreader", None)
        if is_new and unreader is not None and not self.cfg.is_ssl:
            unreader.sock = self.guest = Guest(self.sock, self.worker.app.settings.read_timeout)

    def close(self, graceful: bool = False) -> None:  # noqa: FBT001, FBT002 - gunicorn's signature
        if graceful:
            self.worker.part(self.sock)
        else:
            super().close()


class ThreadWorker(Serving, gthread.ThreadWorker):
    """One request a thread."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._gate = balance.Gate(self.slot, is_shared=not self.cfg.reuse_port)
        self._holding = False
        self._parting: deque[tuple[float, socket.socket]] = deque()
        self._arriving: dict[_Talk, None] = {}
        self._under_way = 0
        self._thread = threading.local()

    def load_wsgi(self) -> None:
        """Load the model."""
        super().load_wsgi()
        self.wsgi = received_by(self.wsgi, self.slot.board, lambda: self._thread.waited)

    def enqueue_req(self, conn: _Talk) -> None:
        """Give a thread a request that has arrived whole: no thread waits for a client."""
        more = self._needed(conn)
        if not more:
            self._arriving.pop(conn, None)
            self._enqueue(conn)
            return
        if conn not in self._arriving:
            conn.timeout = time.monotonic() + (self.app.settings.read_timeout or _NEVER)
            self._arriving[conn] = None
        conn.sock.settimeout(0.0)
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, more)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_more, conn))

    def handle(self, conn: _Talk) -> Any:
        """Serve one request, on a thread."""
        self._thread.waited = time.monotonic() - conn.queued
        if self._thread.waited > _HOLD and has_gone(conn.sock):
            return False
        if conn.guest is not None:
            conn.guest.begin()
        return super().handle(conn)

    def finish_request(self, conn: _Talk, fs: Any) -> None:
        """Take a connection back from its thread."""
        self._under_way -= 1
        super().finish_request(conn, fs)

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
        elif self.cfg.timeout:
            timeout = min(timeout, self.cfg.timeout / 3)
        super().wait_for_and_dispatch_events(_HOLD if self._holding else timeout)
        self.slot.connections = self.nr_conns
        if self._holding and self.alive:
            self._look()

    def murder_pending(self) -> None:
        """Close what has been silent for too long."""
        super().murder_pending()
        while self._arriving and (slow := next(iter(self._arriving))).timeout <= time.monotonic():
            self._give_up(slow)
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

    def _needed(self, conn: _Talk) -> int:
        """The bytes that have to be there before a thread should look; 0 when it should now."""
        if self.cfg.is_ssl or conn.is_http2 or conn.sock.family == socket.AF_UNIX:
            return 0
        if conn.parser is not None and conn.parser.unreader.buf.getvalue():
            return 0
        try:
            return needed(conn.sock.recv(LOOK, socket.MSG_PEEK | socket.MSG_DONTWAIT) or _END)
        except BlockingIOError:
            return 1
        except OSError:
            return 0

    def _on_more(self, conn: _Talk, client: socket.socket) -> None:
        self.poller.unregister(client)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self.enqueue_req(conn)

    def _give_up(self, conn: _Talk) -> None:
        del self._arriving[conn]
        with suppress(KeyError, ValueError):
            self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.close()

    def _enqueue(self, conn: _Talk) -> None:
        most = self.app.settings.max_queue
        if most and self._under_way - self.cfg.threads >= most:
            self._refuse(conn)
            return
        self._under_way += 1
        conn.queued = time.monotonic()
        super().enqueue_req(conn)

    def _refuse(self, conn: _Talk) -> None:
        error = deadlines.full(self._under_way - self.cfg.threads)
        with suppress(OSError):
            if not self.cfg.is_ssl or conn.initialized:
                conn.sock.settimeout(0.0)
                conn.sock.send(refusal.response(error.status, error.message, error.headers))
        self.nr_conns -= 1
        conn.close(graceful=True)

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
        talk.timeout = time.monotonic() + (self.app.settings.read_timeout or _NEVER)
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
        for conn in self.keepalived_conns:
            conn.timeout = min(conn.timeout, deadline, conn.idle_since + LINGER)
        for conn in (*self.pending_conns, *self._arriving):
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

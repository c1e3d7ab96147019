"""The gevent worker: gunicorn's, prompt to leave.

It accepts one connection a turn of its loop and is never blocked for long, so it takes no part in sharing connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

import gevent
from gevent.pool import Pool
from gevent.server import StreamServer
from gunicorn.sock import ssl_context
from gunicorn.workers import ggevent

from prefork.processes.guest import Guest, received_by
from prefork.processes.worker import LINGER, Serving

_GLANCE = 0.1
"""Seconds between two looks at whether to leave."""


class _Leave(BaseException):
    """Ends a greenlet's wait for its client's next request."""


class GeventWorker(Serving, ggevent.GeventWorker):
    """One request a greenlet."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._idle: dict[Any, float] = {}
        self._fresh: WeakSet[Any] = WeakSet()

    def load_wsgi(self) -> None:
        """Load the model."""
        super().load_wsgi()
        self.wsgi = received_by(self.wsgi, self.slot.board)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:  # noqa: ARG002 - gunicorn calls it so
        """Serve one connection."""
        client.settimeout(None)
        self._fresh.add(gevent.getcurrent())
        guest = client if self.cfg.is_ssl else Guest(client, self.app.settings.read_timeout)
        # It is only asked for its own address, which the listener has lost once the worker leaves.
        super().handle(client, guest, addr)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        """Serve one request."""
        try:
            super().handle_request(listener_name, req, sock, addr)
        finally:
            if isinstance(sock, Guest):
                sock.begin()

    def serve(self) -> None:
        """Serve until told to leave."""
        self._servers = [self._server(each) for each in self.sockets]
        for server in self._servers:
            server.start()
        while self.alive:
            self.notify()
            gevent.sleep(_GLANCE)

    def finish(self) -> None:
        """Finish what is in flight."""
        take_rest = self.drain()
        for server in self._servers:
            server.stop_accepting()
            while take_rest and (rest := server.do_read()) is not None:
                server.do_handle(*rest)
            server.close()
        deadline = time.monotonic() + self.app.settings.graceful_timeout
        while any(len(server.pool) for server in self._servers) and time.monotonic() < deadline:
            self.notify()
            self._close_idle()
            gevent.sleep(_GLANCE)
        for server in self._servers:
            server.stop(timeout=0)

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:
        """The wait for a request: ended, without one, by `keepalive`, of the first by `read_timeout`, or by leaving."""
        greenlet = gevent.getcurrent()
        self._idle[greenlet] = time.monotonic()
        is_first = greenlet in self._fresh
        self._fresh.discard(greenlet)
        try:
            seconds = (self.app.settings.read_timeout or None) if is_first else self.cfg.keepalive
            with gevent.Timeout(seconds, False):  # noqa: FBT003 - gevent's signature
                yield
        except _Leave:
            pass
        finally:
            del self._idle[greenlet]

    def _server(self, listener: Any) -> StreamServer:
        tls = {"ssl_context": ssl_context(self.cfg)} if self.cfg.is_ssl else {}
        listener.settimeout(None)
        server = StreamServer(listener, partial(self.handle, listener), spawn=Pool(self.worker_connections), **tls)
        if self.cfg.workers > 1:
            server.max_accept = 1
        return server

    def _close_idle(self) -> None:
        before = time.monotonic() - LINGER
        for greenlet, since in list(self._idle.items()):
            if since <= before:
                greenlet.kill(_Leave, block=False)

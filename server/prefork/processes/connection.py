"""One HTTP connection of the ASGI worker: gunicorn's protocol, counted, with JSON errors, and closed so that answers arrive.

A worker looks through its connections once a second for those that are idle for too long: no timer is made for a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol

from prefork.asgi import CLIENT
from prefork.processes import refusal
from prefork.processes.balance import DRAINING

FIRST_REQUEST = 5.0
"""Seconds for which a connection may be silent where `keepalive` is 0."""

_LINGER = 2.0
"""Seconds that a client has to read an error that came before its request was whole."""

# gunicorn looks for its C parser once for each class but reads what it found from this one: without this line a subclass
# is left with the parser in Python, at a third more CPU for a small request.
ASGIProtocol._check_h1c_protocol_available()  # noqa: SLF001 - gunicorn's own


class Connection(ASGIProtocol):
    """A connection of `worker`, which keeps the set of those that are open."""

    _closed: bool

    def __init__(self, worker: Any) -> None:
        super().__init__(worker)
        self.idle_since: float = worker.loop.time()
        self._refused = False
        self._cells = worker.slot.board.cells
        self.hung_up: Callable[[], object] | None = None
        self.cfg = worker.reading_cfg
        worker.adopt(self)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being received whole, answered or cleaned up after."""
        return self._current_request is None and not self._finishing_calls and self.reader is None

    def close_if_idle(self, since: float) -> None:
        """Close it if it is idle since before that time of the loop's clock."""
        if self.is_idle and self.idle_since <= since:
            self._keepalive_timeout()

    def close_if_slow(self, before: float) -> None:
        """Close it if it was accepted before that time and its first request has not come yet."""
        if self.req_count <= 1 and self.is_idle and self.idle_since <= before:
            self._keepalive_timeout()

    @property
    def is_gone(self) -> bool:
        """Whether the client has hung up, or the connection is closed."""
        return self._closed

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        self.worker.forget(self)
        if self.hung_up is not None:
            self.hung_up()

    def _build_http_scope(self, request: Any, sockname: Any, peername: Any) -> dict[str, Any]:
        scope: dict[str, Any] = super()._build_http_scope(request, sockname, peername)
        scope[CLIENT] = self
        return scope

    def _will_close(self, request: Any, response_requires_close: Any) -> bool:
        return bool(self._cells[DRAINING]) or super()._will_close(request, response_requires_close)

    def _serve_http_request(self, request: Any, sockname: Any, peername: Any) -> Any:
        # gunicorn runs each request in a task of its own, for applications that go on working after their answer.
        return self._handle_http_request(request, sockname, peername)

    def _arm_keepalive_timer(self) -> None:
        self.idle_since = self.worker.loop.time()

    def _cancel_keepalive_timer(self) -> None:
        pass

    def _keepalive_timeout(self) -> None:
        self._close_transport()
        if self._request_ready is not None:
            self._request_ready.set()

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        self._refused = True
        self._safe_write(refusal.response(status, message, extra_headers))

    def _close_transport(self) -> None:
        receiver = self._body_receiver
        unread = self._refused or (receiver is not None and not receiver._complete)  # noqa: SLF001 - gunicorn's own
        if self._closed or self.transport is None or not (unread and self.transport.can_write_eof()):
            super()._close_transport()
            return
        # Closing while the client still sends makes the kernel reset the connection, and the client may then lose the
        # answer that it has not read yet: say that nothing more comes, and let it finish or run into the limit.
        self._closed = True
        self._callback_parser = None
        self.transport.write_eof()
        self._resume_reading()
        self.worker.loop.call_later(_LINGER, self.transport.abort)

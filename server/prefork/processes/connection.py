"""One HTTP connection of the ASGI worker: gunicorn's protocol, counted, with JSON errors, and closed so that answers arrive.

A worker looks through its connections once a second for those that are idle for too long: no timer is made for a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol

from prefork.asgi import CLIENT
from prefork.exchange import Exchange, pieces
from prefork.http import Request, Response
from prefork.processes import refusal
from prefork.processes.balance import DRAINING
from prefork.processes.head import CHUNKED, head

FIRST_REQUEST = 5.0
"""Seconds for which a connection may be silent where `keepalive` is 0."""

_LINGER = 2.0
"""Seconds that a client has to read an error that came before its request was whole."""

# gunicorn looks for its C parser once for each class but reads what it found from this one: without this line a subclass
# is left with the parser in Python, at a third more CPU for a small request.
ASGIProtocol._check_h1c_protocol_available()  # noqa: SLF001 - gunicorn's own


class Connection(ASGIProtocol):
    """A connection of `worker`, which keeps the set of those that are open.

    It is the Exchange, and the Client, of the request at hand. gunicorn's hooks and its access log, and applications that
    are not the front, are served with ASGI's messages.
    """

    _closed: bool
    _task: Any

    def __init__(self, worker: Any) -> None:
        super().__init__(worker)
        self.idle_since: float = worker.loop.time()
        self._refused = False
        self._cells = worker.slot.board.cells
        self._is_begun = self._is_whole = self._is_last = self._is_chunked = self._has_body = False
        watched = self._pre_request or self._post_request or self.log.access_log_enabled
        self._front = None if watched else getattr(self.app, "serve", None)
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
        if self.is_idle:
            self._end_waiting()
        super().connection_lost(exc)
        self.worker.forget(self)
        if self.hung_up is not None:
            self.hung_up()

    def _end_waiting(self) -> None:
        """End what waits for the next request. gunicorn would leave it, and 13 kB, there for three seconds."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _build_http_scope(self, request: Any, sockname: Any, peername: Any) -> dict[str, Any]:
        scope: dict[str, Any] = super()._build_http_scope(request, sockname, peername)
        scope[CLIENT] = self
        return scope

    def _will_close(self, request: Any, response_requires_close: Any) -> bool:
        return bool(self._cells[DRAINING]) or super()._will_close(request, response_requires_close)

    def _serve_http_request(self, request: Any, sockname: Any, peername: Any) -> Any:
        # gunicorn runs each request in a task of its own, for applications that go on working after their answer.
        if self._front is None:
            return self._handle_http_request(request, sockname, peername)
        return self._exchange(request, peername, self._front)

    async def _exchange(
        self, request: Any, peername: Any, front: Callable[[Request, Exchange], Awaitable[None]]
    ) -> bool:
        """What gunicorn does with ASGI's messages, without them; returns whether the connection is kept."""
        self._is_begun = self._is_whole = False
        query = request.query.encode("latin-1") if request.query else b""
        asked = Request(request.method, request.path, query, dict(request.headers_bytes), ())
        asked.peer = peername
        try:
            await front(asked, self)
        except asyncio.CancelledError:  # the client has gone
            return False
        except Exception:
            self.log.exception("%s %s failed inside the server", request.method, request.path)
            if not self._is_begun:
                self._send_error_response(500, "")
            return False
        return self._is_whole and self.worker.alive and not self._is_last

    @property
    def client(self) -> Connection:
        """Who asks."""
        return self

    def receive(self) -> Awaitable[dict[str, Any]]:
        """The next part of the body."""
        received: Awaitable[dict[str, Any]] = self._body_receiver.receive()
        return received

    async def answer(self, response: Response) -> None:
        """Write a response that is no stream."""
        body = response.body
        length = len(body[0]) if len(body) == 1 else sum(map(len, body))
        self._write_head(response, length if response.length is None else response.length)
        for piece in pieces(body, length) if self._has_body else (b"",):
            # What is not bytes may change once this returns, and the transport may still have to send it.
            await self._write(piece if type(piece) is bytes else bytes(piece))
        self._is_whole = True

    async def begin(self, response: Response) -> None:
        """Have the head ready for the first part."""
        self._write_head(response, None)

    async def part(self, body: bytes, *, is_last: bool = False) -> None:
        """Write a part of a stream; the head goes with the first."""
        if not self._has_body:
            body = b""
        if self._is_chunked and is_last and not body:
            body = b"0\r\n\r\n"
            self._is_chunked = False
        if body or is_last:
            await self._write(body, is_last=is_last)
        self._is_whole = is_last

    async def _write(self, body: bytes, *, is_last: bool = False) -> None:
        if not self._closed:
            self._send_body(body, self._is_chunked, is_last)
            if self._flow_control.write_paused:
                await self._flow_control.drain()

    def _write_head(self, response: Response, length: int | None) -> None:
        """Put the head before what is written next."""
        request, status = self._current_request, response.status
        self._has_body = not self._response_omits_body(request.method, status)
        self._is_chunked = length is None and self._has_body and request.version >= (1, 1)
        self._is_last = self._will_close(request, length is None and not self._is_chunked)
        framing = CHUNKED if self._is_chunked else b""
        if length is not None and not self._response_forbids_content_length(status):
            framing = b"content-length: %d\r\n" % length
        self._response_buffer = head(request.version, response, framing, close=self._is_last)
        self._is_begun = True

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

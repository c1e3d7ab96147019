"""The ASGI front: the default, and the hot path.

It reads the body, bounded in size and in time; runs the service inline, on the loop or on the model threads, whichever the request and
the model ask for; and sends the response without joining what is large.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache, partial
from typing import Any

from prefork import deadlines
from prefork.errors import BadRequest, PayloadTooLarge, PreforkError, RequestTooSlow
from prefork.http import Buffer, Request, Response
from prefork.metrics import clock
from prefork.patience import Client, Patience, Receiving
from prefork.protocols import timeouts
from prefork.service import Service, last_event
from prefork.threads import Job, ModelThreads, Parts

log = logging.getLogger("prefork")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_JOIN = 65_536
"""Buffers up to this many bytes in all are joined: one copy is cheaper than one more write to the socket."""


_SLOWEST = 1024
"""Bytes a second that a body has to come at in the long run, once `read_timeout` is over."""

_QUIET = 10.0
"""Seconds between two lines in the log about a full queue."""

CLIENT = "prefork.client"
"""The key in the scope under which a worker passes the connection's Client."""


class AsgiFront:
    """An ASGI 3 application over a service. `threads` 0 runs the model inline, else on that many model threads."""

    def __init__(self, service: Service, threads: int) -> None:
        self._service = service
        settings = service.site.settings
        self._threads = ModelThreads(threads, settings.timeout, self._report_stuck) if threads else None
        self._async = service.site.catalogue.is_async
        self._meter = service.site.meter
        self._limit = settings.max_body_size
        self._seconds = settings.request_timeout
        self._max_queue = settings.max_queue
        self._told_full = -math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's worth of ASGI: a request, or the lifespan."""
        if scope["type"] == "http":
            request = Request(scope["method"], scope["path"], scope["query_string"], _headers(scope), ())
            self._meter.enter()
            try:
                await self._serve(request, scope, receive, send)
            finally:
                self._meter.leave(request)
                if self._threads is not None:
                    self._meter.waiting(self._threads.waiting)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    def close(self) -> None:
        """Let the model threads end."""
        if self._threads is not None:
            self._threads.close()

    async def _serve(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        try:
            if message["type"] != "http.request":
                raise self._too_slow()
            if message.get("more_body") or len(message["body"]) > self._limit:
                request.chunks = await self._read(request, message, receive)
            else:
                request.body = message["body"]
        except (PayloadTooLarge, RequestTooSlow) as error:
            request.status = error.status
            await _send(self._service.refuse(request, error), send)
            return
        request.times.append(clock())
        client = scope.get(CLIENT) or Receiving(receive)
        answer = self._respond(request, client)
        response = answer if isinstance(answer, Response) else await answer
        if response is None:  # the client has gone
            return
        request.status = response.status
        if response.stream is None:
            await _send(response, send)
        else:
            await _stream(request, response, client, send)

    async def _read(self, request: Request, message: dict[str, Any], receive: Receive) -> list[bytes]:
        limit = self._limit
        if int(request.header(b"content-length") or 0) > limit:
            raise _too_large(limit)
        seconds = self._service.site.settings.read_timeout or math.inf
        begun = time.monotonic()
        chunks: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise self._too_slow()
            chunks.append(message["body"])
            size += len(message["body"])
            if size > limit:
                raise _too_large(limit)
            if not message.get("more_body"):
                return chunks
            if time.monotonic() - begun > seconds + size / _SLOWEST:
                raise self._too_slow()
            message = await receive()

    def _too_slow(self) -> RequestTooSlow:
        error = RequestTooSlow(
            f"the body did not come whole in {self._service.site.settings.read_timeout:g} s (read_timeout)"
        )
        error.headers = (("Connection", "close"),)
        return error

    def _respond(self, request: Request, client: Client) -> Response | Awaitable[Response | None]:
        """The response, or what to await for it; that gives None where the client has gone meanwhile."""
        service = self._service
        if not service.calls_model(request):
            if request.route is not None and request.route.off_loop:
                return asyncio.to_thread(service.answer, request)
            return service.answer(request)
        if self._seconds or deadlines.HEADER in request.headers:
            try:
                request.arrived = time.monotonic()
                deadlines.begin(request, self._seconds)
            except BadRequest as error:
                return service.refuse(request, error)
        if self._async:
            return self._on_loop(request, client)
        if self._threads is None:
            return service.answer(request)
        return self._on_thread(request, client, self._threads)

    async def _on_loop(self, request: Request, client: Client) -> Response | None:
        patience = Patience(client, request.deadline)
        request.lower, request.cancelled = patience.lower, patience.is_over
        response: Response | None = None
        try:
            response = await self._service.answer_async(request)
        except asyncio.CancelledError:
            if not patience.caught():
                raise
        finally:
            patience.stop()
        if patience.is_late:
            return self._tell(request, deadlines.late(request))
        return None if patience.is_gone else response

    async def _on_thread(self, request: Request, client: Client, threads: ModelThreads) -> Response | None:
        service = self._service
        job = Job(partial(service.answer, request))
        request.arrived = request.arrived or time.monotonic()
        request.cancelled, request.lower = job.cancelled, job.lower
        waiting = threads.waiting
        if waiting >= 0:
            if self._max_queue and waiting >= self._max_queue:
                return self._refuse_full(request, waiting)
            if request.route is not None and request.route.protocol == "v2":
                self._glimpse(request)
        future = threads.run(job)
        self._meter.waiting(threads.waiting)
        if request.deadline != math.inf:
            threads.limit(job, request.deadline)
        client.hung_up = job.abandon
        try:
            response = await future
        except asyncio.CancelledError:
            threads.abandon(job)
            raise
        finally:
            client.hung_up = None
            if job.timer is not None:
                job.timer.cancel()
        if response is None and not client.is_gone:
            late = deadlines.late if job.was_begun else deadlines.late_in_queue
            return self._tell(request, late(request))
        return response

    def _glimpse(self, request: Request) -> None:
        """Keep to a V2 request's own `timeout` before it is decoded: that will be its thread's business."""
        timeout = timeouts.glimpse(request, self._service.site.catalogue.main().spec)
        if timeout is not None:
            request.deadline = min(request.deadline, request.arrived + timeout)

    def _tell(self, request: Request, error: PreforkError) -> Response:
        log.warning("%s %s: %d %s", request.method, request.path, error.status, error)
        return self._service.refuse(request, error)

    def _refuse_full(self, request: Request, waiting: int) -> Response:
        now = time.monotonic()
        if now - self._told_full > _QUIET:
            log.warning("requests are refused with 503: %d wait for the model (max_queue)", waiting)
            self._told_full = now
        return self._service.refuse(request, deadlines.full(waiting))

    def _report_stuck(self) -> None:
        self._service.site.crew.report_stuck()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                self.close()
                return


def _headers(scope: Scope) -> dict[bytes, bytes]:
    return dict(scope["headers"])


def _too_large(limit: int) -> PayloadTooLarge:
    error = PayloadTooLarge(f"the body is over {limit} bytes (max_body_size)")
    error.headers = (("Connection", "close"),)  # what is left of the body is not read
    return error


@lru_cache(256)
def _header(name: str, value: str) -> tuple[bytes, bytes]:
    return name.lower().encode("latin-1"), value.encode("latin-1")


def _head(response: Response, length: int | None) -> dict[str, Any]:
    headers = [_header("content-type", response.content_type)]
    for name, value in response.headers:
        headers.append(_header(name, value))
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    return {"type": "http.response.start", "status": response.status, "headers": headers}


async def _send(response: Response, send: Send) -> None:
    body = response.body
    if len(body) == 1:
        await send(_head(response, len(body[0])))
        await send({"type": "http.response.body", "body": body[0]})
        return
    length = sum(map(len, body))
    await send(_head(response, length if response.length is None else response.length))
    parts: list[Buffer] = [b"".join(body)] if length <= _JOIN else body
    for part in parts[:-1]:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": parts[-1]})


async def _stream(request: Request, response: Response, client: Client, send: Send) -> None:
    """Send the parts as they come. A client that hangs up, or the deadline, closes the stream, and with it the user's generator."""
    stream = response.stream
    assert stream is not None
    # Where the model runs inline, the service itself looks at the deadline between two parts.
    patience = Patience(client, request.deadline if hasattr(stream, "__anext__") else math.inf)
    if not isinstance(stream, Parts):
        request.cancelled = patience.is_over
    try:
        await send(_head(response, None))
        async for part in _as_async(stream):
            if patience.is_gone:
                break
            await send({"type": "http.response.body", "body": part, "more_body": True})
        patience.stop()
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not patience.caught():
            raise
        if patience.is_late:
            last = last_event(deadlines.late(request))
            await send({"type": "http.response.body", "body": last})
    finally:
        patience.stop()
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


async def _as_async(stream: Any) -> AsyncIterator[bytes]:
    if hasattr(stream, "__anext__"):
        async for part in stream:
            yield part
        return
    try:
        for part in stream:  # threads: 0: the model runs on the loop, by the user's choice
            yield part
            await asyncio.sleep(0)
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()

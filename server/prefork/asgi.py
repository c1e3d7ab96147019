"""The ASGI front: the default, and the hot path.

It reads the body, bounded in size and in time; runs the service inline, on the loop or on the model threads, whichever the request and
the model ask for; and sends the response without joining what is large.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import Any

from prefork import apart, deadlines
from prefork.errors import BadRequest, PayloadTooLarge, PreforkError, RequestTooSlow
from prefork.exchange import Exchange, Messages, Receive, Send
from prefork.http import Request, Response
from prefork.later import Again, Later
from prefork.metrics import clock
from prefork.patience import Client, Patience
from prefork.protocols import timeouts
from prefork.service import Service, last_event
from prefork.threads import Job, ModelThreads, Parts

log = logging.getLogger("prefork")

Scope = dict[str, Any]

_SLOWEST = 1024
"""Bytes a second that a body has to come at in the long run, once `read_timeout` is over."""

_LIGHT = 262_144
"""Bytes of a body for a model elsewhere from which on decoding it would keep the event loop for too long."""

_QUIET = 10.0
"""Seconds between two lines in the log about a full queue."""

CLIENT = "prefork.client"
"""The key in the scope under which a worker passes the connection's Client."""


class AsgiFront:
    """An ASGI 3 application over a service. `threads` 0 runs the model inline, else on that many model threads."""

    def __init__(self, service: Service, threads: int) -> None:
        self._service = service
        service.defers = True
        settings = service.site.settings
        self._threads = ModelThreads(threads, settings.timeout, self._report_stuck) if threads else None
        self._async = service.site.catalogue.is_async
        self._light = _LIGHT if service.site.catalogue.may_block else math.inf
        self._meter = service.site.meter
        self._limit = settings.max_body_size
        self._seconds = settings.request_timeout
        self._max_queue = settings.max_queue
        self._told_full = -math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's worth of ASGI: a request, or the lifespan."""
        if scope["type"] == "http":
            request = Request(scope["method"], scope["path"], scope["query_string"], dict(scope["headers"]), ())
            request.peer = scope.get("client")
            await self.serve(request, Messages(receive, send, scope.get(CLIENT)))
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def serve(self, request: Request, exchange: Exchange) -> None:
        """Answer a request whose body is still to be received."""
        self._meter.enter()
        try:
            await self._serve(request, exchange)
        finally:
            self._meter.leave(request)
            if self._threads is not None:
                self._meter.waiting(self._threads.waiting)

    def close(self) -> None:
        """Let the model threads end."""
        if self._threads is not None:
            self._threads.close()

    async def _serve(self, request: Request, exchange: Exchange) -> None:
        try:
            await self._receive(request, exchange)
        except (PayloadTooLarge, RequestTooSlow) as error:
            request.status = error.status
            await exchange.answer(self._service.refuse(request, error))
            return
        request.times.append(clock())
        answer = self._respond(request, exchange.client)
        response = answer if isinstance(answer, Response) else await answer
        if response is None:  # the client has gone
            return
        request.status = response.status
        if response.stream is None:
            await exchange.answer(response)
        else:
            await _stream(request, response, exchange)

    async def _receive(self, request: Request, exchange: Exchange) -> None:
        message = await exchange.receive()
        if message["type"] != "http.request":
            raise self._too_slow()
        if message.get("more_body") or len(message["body"]) > self._limit:
            request.chunks = await self._read(request, message, exchange.receive)
        else:
            request.body = message["body"]

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
            return self._without_model(request)
        if self._seconds or deadlines.HEADER in request.headers:
            try:
                request.arrived = time.monotonic()
                deadlines.begin(request, self._seconds)
            except BadRequest as error:
                return service.refuse(request, error)
        if self._async:
            return self._elsewhere(request, client)
        if self._threads is None:
            response = service.answer(request)
            return response if response.__class__ is Response else self._inline(request, client, response)
        return self._on_thread(request, client, self._threads)

    def _without_model(self, request: Request) -> Response | Awaitable[Response]:
        answer, route = self._service.answer, request.route
        if route is not None and route.lasts:
            return apart.begin(partial(answer, request))
        if route is not None and route.off_loop:
            return asyncio.to_thread(answer, request)
        return answer(request)

    def _elsewhere(self, request: Request, client: Client) -> Awaitable[Response | None]:
        service = self._service
        if self._light != math.inf and sum(map(len, request.chunks)) > self._light and not _streams(request):
            return asyncio.to_thread(service.answer, request)
        return self._on_loop(request, client, service.answer_async(request))

    async def _inline(self, request: Request, client: Client, response: Response | None) -> Response | None:
        later = None
        while response.__class__ is not Response:
            if isinstance(response, Later):
                later, response = response, response.work()
            elif isinstance(response, Again):
                await asyncio.sleep(0)
                response = response.produce()
            else:
                assert later is not None
                return await self._later(request, client, later)
        return response

    async def _later(self, request: Request, client: Client, later: Later) -> Response | None:
        response: Response | None = None
        try:
            if not client.is_gone:
                response = await self._on_loop(request, client, later.finish())
        finally:
            if response is None or response.stream is None:
                later.outbox.leave()
        return response

    async def _on_loop(self, request: Request, client: Client, coming: Awaitable[Response]) -> Response | None:
        patience = Patience(client, request.deadline)
        request.lower, request.cancelled = patience.lower, patience.is_over
        response: Response | None = None
        try:
            response = await coming
        except asyncio.CancelledError:
            if not patience.caught():
                raise
        finally:
            patience.stop()
        if patience.is_late:
            late = deadlines.late if request.was_begun else deadlines.late_in_queue
            return self._tell(request, late(request))
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
        return await self._later(request, client, response) if isinstance(response, Later) else response

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


def _streams(request: Request) -> bool:
    return request.route is not None and request.route.path.endswith("/generate_stream")


def _too_large(limit: int) -> PayloadTooLarge:
    error = PayloadTooLarge(f"the body is over {limit} bytes (max_body_size)")
    error.headers = (("Connection", "close"),)  # what is left of the body is not read
    return error


async def _stream(request: Request, response: Response, exchange: Exchange) -> None:
    """Send the parts as they come. A client that hangs up, or the deadline, closes the stream, and with it the user's generator."""
    stream = response.stream
    assert stream is not None
    # Where the model runs inline, the service itself looks at the deadline between two parts.
    patience = Patience(exchange.client, request.deadline if hasattr(stream, "__anext__") else math.inf)
    if not isinstance(stream, Parts):
        request.cancelled = patience.is_over
    try:
        await exchange.begin(response)
        async for part in _as_async(stream):
            if patience.is_gone:
                break
            await exchange.part(part)
        patience.stop()
        await exchange.part(b"", is_last=True)
    except asyncio.CancelledError:
        if not patience.caught():
            raise
        if patience.is_late:
            await exchange.part(last_event(deadlines.late(request)), is_last=True)
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

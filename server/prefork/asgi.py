"""The ASGI front: the default, and the hot path.

It reads the body, bounded; runs the service inline, on the loop or on the model threads, whichever the request and
the model ask for; and sends the response without joining what is large.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from typing import Any

from prefork.errors import PayloadTooLarge
from prefork.http import Buffer, Request, Response
from prefork.service import Service
from prefork.threads import ModelThreads

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_JOIN = 65_536
"""Buffers up to this many bytes in all are joined: one copy is cheaper than one more write to the socket."""


class ClientGone(Exception):
    """The client hung up before its request was whole."""


class AsgiFront:
    """An ASGI 3 application over a service. `threads` 0 runs the model inline, else on that many model threads."""

    def __init__(self, service: Service, threads: int) -> None:
        self._service = service
        self._threads = ModelThreads(threads) if threads else None
        self._async = service.instance.is_async
        self._limit = service.site.settings.max_body_size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's worth of ASGI: a request, or the lifespan."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    def close(self) -> None:
        """Let the model threads end."""
        if self._threads is not None:
            self._threads.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        request = Request(scope["method"], scope["path"], scope["query_string"], _headers(scope), ())
        try:
            if message["type"] != "http.request":
                return
            if message.get("more_body") or len(message["body"]) > self._limit:
                request.chunks = await self._read(request, message, receive)
            else:
                request.body = message["body"]
        except ClientGone:
            return
        except PayloadTooLarge as error:
            await _send(self._service.refuse(request, error), send)
            return
        response = await self._respond(request)
        if response.stream is None:
            await _send(response, send)
        else:
            await _stream(response, receive, send)

    async def _read(self, request: Request, message: dict[str, Any], receive: Receive) -> list[bytes]:
        limit = self._limit
        if int(request.header(b"content-length") or 0) > limit:
            raise _too_large(limit)
        chunks: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise ClientGone
            chunks.append(message["body"])
            size += len(message["body"])
            if size > limit:
                raise _too_large(limit)
            if not message.get("more_body"):
                return chunks
            message = await receive()

    async def _respond(self, request: Request) -> Response:
        service = self._service
        if not service.calls_model(request):
            return service.answer(request)
        if self._async:
            return await service.answer_async(request)
        if self._threads is None:
            return service.answer(request)
        return await self._threads.run(lambda: service.answer(request))

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


async def _stream(response: Response, receive: Receive, send: Send) -> None:
    """Send the parts as they come; a client that hangs up closes the stream, and with it the user's generator."""
    stream = response.stream
    assert stream is not None
    watch = _Watch(receive)
    try:
        await send(_head(response, None))
        async for part in _as_async(stream):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        watch.stop()
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not watch.gone:
            raise
    finally:
        watch.stop()
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


class _Watch:
    """Cancels the task that made it when the client hangs up, even while that task waits for the model."""

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._task = asyncio.current_task()
        self._receiving = asyncio.ensure_future(receive())
        self._receiving.add_done_callback(self._hung_up)

    def stop(self) -> None:
        self._receiving.remove_done_callback(self._hung_up)
        self._receiving.cancel()

    def _hung_up(self, receiving: asyncio.Future[dict[str, Any]]) -> None:
        if not receiving.cancelled() and self._task is not None:
            self.gone = True
            self._task.cancel()


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

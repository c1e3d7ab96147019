"""One request on its way in and its answer on its way out, whatever server stands before the front.

`Messages` is an exchange over ASGI's messages, behind any ASGI server. A server that knows the front can be one itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Protocol

from prefork.http import Buffer, Response
from prefork.patience import Client, Receiving

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_JOIN = 65_536
"""Buffers up to this many bytes in all are joined: one copy is cheaper than one more write to the socket."""


class Exchange(Protocol):
    """What the front knows of one request's connection."""

    @property
    def client(self) -> Client:
        """Who asks."""
        ...

    def receive(self) -> Awaitable[dict[str, Any]]:
        """The next of ASGI's messages with a part of the body."""
        ...

    async def answer(self, response: Response) -> None:
        """Send a response that is no stream, whole."""
        ...

    async def begin(self, response: Response) -> None:
        """Send the head of a stream."""
        ...

    async def part(self, body: bytes, *, is_last: bool = False) -> None:
        """Send the next part of a stream; returns when there is room for another."""
        ...


class Messages:
    """An Exchange over ASGI's messages. client: who asks, where the server tells; else it is found out by receiving."""

    def __init__(self, receive: Receive, send: Send, client: Client | None = None) -> None:
        self.receive = receive
        self._send = send
        self.client = client or Receiving(receive)

    async def answer(self, response: Response) -> None:
        """A head, and the body in as many messages as it is worth."""
        length = sum(map(len, response.body))
        await self._send(_head(response, length if response.length is None else response.length))
        *parts, last = pieces(response.body, length)
        for part in parts:
            await self.part(part)
        await self.part(last, is_last=True)

    async def begin(self, response: Response) -> None:
        """A head without a length."""
        await self._send(_head(response, None))

    async def part(self, body: Buffer, *, is_last: bool = False) -> None:
        """A message of the body."""
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})


def pieces(body: list[Buffer], length: int) -> list[Buffer]:
    """The buffers of a body of so many bytes as they are best sent; one at least."""
    if len(body) == 1:
        return body
    return [b"".join(body)] if length <= _JOIN else body


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

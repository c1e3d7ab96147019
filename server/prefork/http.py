"""A request and a response as the fronts hand them over: no socket, no framework.

`Request.body` is joined only when somebody asks; `aligned` joins so that the tensors behind a JSON head of known
length start on a 64-byte boundary and are writable, with the one copy that joining needs anyway.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl

Buffer = bytes | bytearray | memoryview
ALIGNMENT = 64


def _never() -> bool:
    return False


class Request:
    """One HTTP request with its whole body.

    headers: lower-case names to values, both bytes as they came; query: what stands behind the `?`, undecoded;
    params: the variable parts of the path, by name; chunks: the body in the pieces that the socket gave. route: where the
    service has found it to lead.
    arrived, deadline: monotonic times, in seconds, at which the request was whole and at which its time is up. lower: tells
    whoever answers in time, whatever the model does, of an earlier deadline; None where nobody can. cancelled: whether the client
    has gone, or got its answer already. was_begun: of one that was given up, whether the model had it by then.
    times: of `perf_counter`, when it began and when each of metrics.STAGES was over. failure: the kind of the error that it met.
    status: the answer's; 0 while there is none. peer: the other end's address as the socket tells it, a pair or more, or a text.
    """

    __slots__ = (
        "_body",
        "arrived",
        "cancelled",
        "chunks",
        "deadline",
        "environ",
        "failure",
        "headers",
        "lower",
        "method",
        "params",
        "path",
        "peer",
        "query",
        "route",
        "status",
        "times",
        "was_begun",
    )

    def __init__(
        self, method: str, path: str, query: bytes, headers: dict[bytes, bytes], chunks: Sequence[bytes]
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.chunks = chunks
        self.params: dict[str, str] = {}
        self.route: Any = None
        self.environ: dict[str, Any] | None = None
        self.times = [time.perf_counter()]
        self.failure = ""
        self.status = 0
        self.peer: Any = None
        self.arrived = 0.0
        self.deadline = math.inf
        self.lower: Callable[[float], None] | None = None
        self.cancelled: Callable[[], bool] = _never
        self.was_begun = True
        self._body: bytes | None = chunks[0] if len(chunks) == 1 else None

    @property
    def client(self) -> str:
        """Who asks: the address, without the port; `unix` over a socket that has none."""
        host = self.peer[0] if isinstance(self.peer, tuple | list) and self.peer else self.peer
        return host if isinstance(host, str) and host and not host.startswith("/") else "unix"

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.cancelled() or time.monotonic() >= self.deadline

    @property
    def body(self) -> bytes:
        """The whole body."""
        if self._body is None:
            self._body = b"".join(self.chunks)
        return self._body

    @body.setter
    def body(self, body: bytes) -> None:
        self.chunks = (body,)
        self._body = body

    def header(self, name: bytes) -> str:
        """The value of a header, by its lower-case name; empty when it is absent."""
        return self.headers.get(name, b"").decode("latin-1")

    def query_value(self, name: str) -> str | None:
        """The last value of a query parameter, or None."""
        if not self.query:
            return None
        return dict(parse_qsl(self.query.decode("latin-1"), keep_blank_values=True)).get(name)

    def aligned(self, head: int) -> memoryview:
        """The body in writable memory, its byte number `head` on an ALIGNMENT boundary."""
        size = sum(map(len, self.chunks))
        room = bytearray(size + 2 * ALIGNMENT)
        start = -(_address(room) + head) % ALIGNMENT
        view = memoryview(room)[start : start + size]
        at = 0
        for chunk in self.chunks:
            view[at : at + len(chunk)] = chunk
            at += len(chunk)
        return view


def _address(room: bytearray) -> int:
    import numpy as np

    return int(np.frombuffer(room, dtype=np.uint8).ctypes.data)


class Response:
    """One HTTP response: a body of buffers that are sent one behind the other, or a stream of them.

    length: the bytes of the body, where that is not sent (HEAD).
    """

    __slots__ = ("body", "content_type", "headers", "length", "status", "stream")

    def __init__(
        self,
        body: Buffer | list[Buffer] = b"",
        *,
        status: int = 200,
        content_type: str = "application/json",
        headers: Sequence[tuple[str, str]] = (),
        stream: Iterator[bytes] | AsyncIterator[bytes] | None = None,
    ) -> None:
        self.body: list[Buffer] = body if isinstance(body, list) else [body]
        self.status = status
        self.content_type = content_type
        self.headers = list(headers)
        self.length: int | None = None
        self.stream = stream

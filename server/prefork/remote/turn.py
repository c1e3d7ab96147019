"""How long a request may wait until a model has it, seen from the worker: `queue_timeout` and `timeout_action`.

While every thread of the model is busy, nobody there looks at what waits. The worker does: what the other side has not read yet
can still be taken back.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from prefork.batch.ask import expired
from prefork.batch.plan import level
from prefork.remote import blocking
from prefork.remote.talk import was_read
from prefork.remote.wire import Arrived, Incoming
from prefork.repository.config import Batching, LevelQueue

_MICROSECONDS = 1e6


class Behind(Exception):
    """The request has waited for so long, and goes behind the others."""


class Turn:
    """One request's, by the policy of its level."""

    __slots__ = ("_delays", "_seconds")

    def __init__(self, policy: Batching, parameters: Mapping[str, Any] | None) -> None:
        queue = policy.queue(level(parameters, policy))
        self._seconds = queue.queue_timeout / _MICROSECONDS or math.inf
        self._delays = queue.timeout_action == "delay"

    async def frame(self, sock: socket.SocketType, read: Callable[[], Awaitable[Arrived]]) -> Arrived:
        """What `read` gives. Raises Unavailable, or Behind, if the model does not have the request in time."""
        if self._seconds != math.inf:
            try:
                async with asyncio.timeout(self._seconds):
                    return await read()
            except TimeoutError:
                self._pass(sock)
        return await read()

    def frame_now(self, sock: socket.SocketType, incoming: Incoming, deadline: float) -> Arrived:
        """As `frame`, on a blocking socket; and TimeoutError at the deadline."""
        until = time.monotonic() + self._seconds
        if until < deadline:
            try:
                return blocking.frame(sock, incoming, until)
            except TimeoutError:
                self._pass(sock)
            blocking.limit(sock, deadline)
        return blocking.frame(sock, incoming, deadline)

    def _pass(self, sock: socket.SocketType) -> None:
        """The time is up. If the model has the request by now, that is without limit."""
        if not was_read(sock):
            raise Behind if self._delays else expired()
        self._seconds = math.inf


def _queues(policy: Batching) -> Iterator[Batching | LevelQueue]:
    yield policy
    yield from policy.priority_queues.values()


def limits(policy: Batching | None) -> bool:
    """Whether requests may wait for so long only."""
    return policy is not None and any(each.queue_timeout for each in _queues(policy))

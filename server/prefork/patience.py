"""How long the ASGI front waits for a model: until its answer, the request's deadline or the client's hanging up."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

HungUp = Callable[[], object]


class Client(Protocol):
    """The other end of a connection. `hung_up` is called on the loop when it goes; None where nobody wants to know."""

    hung_up: HungUp | None

    @property
    def is_gone(self) -> bool:
        """Whether it has gone already."""
        ...


class Receiving:
    """A Client behind any ASGI server: `receive`, in a task of its own while somebody wants to know."""

    def __init__(self, receive: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._receive = receive
        self._hung_up: HungUp | None = None
        self._task: asyncio.Future[dict[str, Any]] | None = None
        self.is_gone = False

    @property
    def hung_up(self) -> HungUp | None:
        """What is called when the client goes."""
        return self._hung_up

    @hung_up.setter
    def hung_up(self, hung_up: HungUp | None) -> None:
        self._hung_up = hung_up
        if hung_up is not None and self._task is None and not self.is_gone:
            self._task = asyncio.ensure_future(self._receive())
            self._task.add_done_callback(self._received)
        elif hung_up is None and self._task is not None:
            self._task.cancel()
            self._task = None

    def _received(self, task: asyncio.Future[dict[str, Any]]) -> None:
        if task.cancelled():
            return
        self.is_gone = True
        if self._hung_up is not None:
            self._hung_up()


class Patience:
    """Cancels the task that made it when the client hangs up, or at the deadline, whatever it awaits.

    deadline: in monotonic seconds.
    """

    def __init__(self, client: Client, deadline: float) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)
        self._timer: asyncio.TimerHandle | None = None
        self.is_gone = client.is_gone
        self.is_late = False
        client.hung_up = self._hang_up
        if deadline != math.inf:
            self.lower(deadline)

    def lower(self, deadline: float) -> None:
        """End at another, earlier time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._expire)

    def is_over(self) -> bool:
        """Whether the client has gone or the time is up."""
        return self.is_gone or self.is_late

    def caught(self) -> bool:
        """Whether it was this that cancelled the task; then the task goes on."""
        if self.is_over() and self._task is not None:
            self._task.uncancel()
        return self.is_over()

    def stop(self) -> None:
        """Cancel nothing any more."""
        self._client.hung_up = None
        if self._timer is not None:
            self._timer.cancel()

    def _hang_up(self) -> None:
        self.is_gone = True
        self._cancel()

    def _expire(self) -> None:
        self.is_late = True
        self._cancel()

    def _cancel(self) -> None:
        self.stop()
        if self._task is not None:
            self._task.cancel()

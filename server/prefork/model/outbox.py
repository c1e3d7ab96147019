"""The parts of one answer, on their way from whatever threads the user's code sends them in to the one who reads them.

At most AHEAD parts wait for the reader before a sender waits. The outbox ends once: with the model's last part, with an
error, or when the reader leaves. From then on it holds neither the request nor anything of the server's.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from prefork.errors import DeadlineExceeded, ModelFailed, PreforkError

AHEAD = 16
"""How many parts may wait for the reader before the sender is held back."""

MOST = 1024
"""How many may, where the sender cannot be held back; one more ends the request."""

_GLANCE = 0.1
"""Seconds between two looks, by who waits, at whether anybody waits for the answer."""

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class SenderClosed(RuntimeError):
    """A part was sent after the last one."""


class Outbox:
    """The way of the parts; an iterator over them, for a thread, and an asynchronous one.

    encode: what becomes of a part, in the thread that sends it. fail: what a client is told of an exception.
    cancelled: whether nobody waits for the answer. ended: called once, when nothing more can be sent. left: called when the
    reader leaves before that.
    """

    left: Callable[[], object] | None = None

    def __init__(
        self,
        encode: Callable[[Any], Any],
        fail: Callable[[BaseException], PreforkError],
        cancelled: Callable[[], bool] | None = None,
        ended: Callable[[Outbox], object] | None = None,
    ) -> None:
        self._encode: Callable[[Any], Any] | None = encode
        self._fail: Callable[[BaseException], PreforkError] | None = fail
        self._cancelled = cancelled or _never
        self._when_ended = ended
        # Its lock can be taken twice by one thread: the garbage collector may end the outbox inside any of these methods.
        self._changed = threading.Condition()
        self._parts: deque[Any] = deque()
        self._error: PreforkError | None = None
        self._is_closed = False
        self._is_over = False
        self._waiters: list[_Waiter] = []

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be sent; there may be parts to be read."""
        return self._is_over

    def cancelled(self) -> bool:
        """Whether nobody wants more of the answer, or the request has failed. False once the model has closed it."""
        return not self._is_closed and (self._is_over or self._cancelled())

    def put(self, part: Any, *, final: bool, wait: bool) -> bool:
        """Send a part; whether it was taken. Raises SenderClosed, and what `encode` raises, which ends the request.

        wait: whether this thread may be held back; one that runs an event loop never is.
        """
        if self._is_closed:
            raise _closed()
        encode = self._encode
        if encode is None or self.cancelled():
            return self._drop(final=final)
        try:
            value = encode(part)
        except Exception as error:
            self.fail(error)
            raise
        with self._changed:
            if wait and len(self._parts) >= AHEAD and not _runs_a_loop():
                self._wait_for_room()
            if self._is_closed:
                raise _closed()
            if not self._is_over and len(self._parts) >= MOST:
                self.end(_too_slow())
            if self.cancelled():
                return self._drop(final=final)
            self._parts.append(value)
            if final:
                self._is_closed = True
                self.end()
            self._wake()
        return True

    async def room(self) -> None:
        """Wait, on the running event loop, until a part could be sent without being ahead."""
        while (waiter := self._waiter(lambda: len(self._parts) >= AHEAD and not self.cancelled())) is not None:
            await waiter

    def close(self) -> None:
        """No more parts will come; those that were sent are read. More than once does no harm."""
        with self._changed:
            self.end()
            self._is_closed = True

    def fail(self, error: BaseException) -> bool:
        """End with an exception of the user's; whether it was not over yet."""
        fail = self._fail
        if fail is None:
            return False
        found = fail(error)
        if found is not error:
            found.__cause__ = error
        return self.end(found)

    def end(self, error: PreforkError | None = None) -> bool:
        """End, with an error where there is one; whether it was not over yet. The parts that were sent are still read."""
        with self._changed:
            if self._is_over:
                return False
            self._is_over = True
            self._error = error
            ended, self._when_ended = self._when_ended, None
            self._encode = self._fail = self.left = None
            self._cancelled = _never
            self._wake()
        if ended is not None:
            ended(self)
        return True

    def leave(self) -> bool:
        """The reader leaves; whether that was before the end."""
        with self._changed:
            self._parts.clear()
            left = self.left
            is_early = self.end()
        if is_early and left is not None:
            left()
        return is_early

    def __iter__(self) -> Outbox:
        return self

    def __next__(self) -> Any:
        with self._changed:
            while not self._parts and not self._is_over:
                self._changed.wait(_GLANCE)
                if not self._parts and self.cancelled():
                    self.end(DeadlineExceeded("the model had not sent its last part when nobody waited any more"))
            if self._parts:
                return self._taken()
            self._raise()
            raise StopIteration

    def __aiter__(self) -> Outbox:
        return self

    async def __anext__(self) -> Any:
        while True:
            waiter = self._waiter(lambda: not self._parts and not self._is_over)
            if waiter is None:
                break
            await waiter
        with self._changed:
            if self._parts:
                return self._taken()
            self._raise()
            raise StopAsyncIteration

    def _waiter(self, needed: Callable[[], bool]) -> asyncio.Future[None] | None:
        with self._changed:
            if not needed():
                return None
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append((loop, future))
            return future

    def _taken(self) -> Any:
        self._wake()
        return self._parts.popleft()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _wait_for_room(self) -> None:
        while len(self._parts) >= AHEAD and not self._is_over and not self._cancelled():
            self._changed.wait(_GLANCE)

    def _drop(self, *, final: bool) -> bool:
        if final:
            self.close()
        return False

    def _wake(self) -> None:
        self._changed.notify_all()
        waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, future)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _never() -> bool:
    return False


def _closed() -> SenderClosed:
    return SenderClosed("nothing can be sent any more: the last part was, or the request was handed back")


def _too_slow() -> ModelFailed:
    return ModelFailed(f"the client is {MOST} parts behind the model")

"""Model threads: where `predict` runs while the event loop goes on answering probes and reading requests.

A job makes a response; when that response streams, the same thread goes on to drive the stream, because frameworks
keep state in the thread (torch's inference mode, for one). The loop receives the parts through a bounded buffer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue

from prefork.http import Response

_AHEAD = 16
"""How many parts of a stream may wait for the client before the model is held back."""

Job = tuple[Callable[[], Response], "asyncio.Future[Response]"]


class ModelThreads:
    """`count` daemon threads that run jobs in the order in which they came."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def run(self, produce: Callable[[], Response]) -> asyncio.Future[Response]:
        """Run `produce` on a thread; await the result for its response. It must not raise."""
        loop = self._loop or self._start()
        future: asyncio.Future[Response] = loop.create_future()
        self._jobs.put((produce, future))
        return future

    def close(self) -> None:
        """Let the threads end after the jobs they have."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _start(self) -> asyncio.AbstractEventLoop:
        # In the worker and on its loop: threads do not survive a fork.
        self._loop = asyncio.get_running_loop()
        for number in range(self._count):
            threading.Thread(target=self._work, name=f"model-{number}", daemon=True).start()
        return self._loop

    def _work(self) -> None:
        loop = self._loop
        assert loop is not None
        with suppress(RuntimeError):  # the loop is closed: the worker is leaving
            while (job := self._jobs.get()) is not None:
                produce, future = job
                if not future.cancelled():
                    _answer(loop, produce(), future)


def _answer(loop: asyncio.AbstractEventLoop, response: Response, future: asyncio.Future[Response]) -> None:
    source = response.stream
    if source is None or isinstance(source, AsyncIterator):
        loop.call_soon_threadsafe(_deliver, future, response)
        return
    parts = Parts(loop)
    response.stream = parts
    loop.call_soon_threadsafe(_deliver, future, response)
    parts.pump(source)


def _deliver(future: asyncio.Future[Response], response: Response) -> None:
    if not future.done():
        future.set_result(response)
    elif isinstance(response.stream, Parts):
        response.stream.cancel()


class Parts:
    """An asynchronous iterator over what another thread's iterator gives, at most `_AHEAD` parts ahead of its reader."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parts: deque[bytes] = deque()
        self._room = threading.Semaphore(_AHEAD)
        self._cancelled = False
        self._ended = False
        self._more = asyncio.Event()

    def pump(self, source: Iterator[bytes]) -> None:
        """Drive `source` to its end on this thread, or close it once nobody reads any more."""
        try:
            for part in source:
                self._room.acquire()
                if self._cancelled:
                    break
                self._loop.call_soon_threadsafe(self._add, part)
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()
            self._loop.call_soon_threadsafe(self._end)

    def cancel(self) -> None:
        """Stop reading: the source is closed at its next part."""
        self._cancelled = True
        self._room.release()

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._more.set()

    def _end(self) -> None:
        self._ended = True
        self._more.set()

    def __aiter__(self) -> Parts:
        return self

    async def __anext__(self) -> bytes:
        while not self._parts:
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        self._room.release()
        return self._parts.popleft()

    async def aclose(self) -> None:
        """What closing an asynchronous generator does: `cancel`."""
        self.cancel()

"""Model threads: where `predict` runs while the event loop goes on answering probes and reading requests.

A job makes a response; when that response streams, the same thread goes on to drive the stream, because frameworks
keep state in the thread (torch's inference mode, for one). The loop receives the parts through a bounded buffer.
A job that nobody waits for any more is never begun; a thread that stays with one for too long is reported.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue

from prefork.http import Response
from prefork.later import Again, Later

_AHEAD = 16
"""How many parts of a stream may wait for the client before the model is held back."""

_SWITCH = 0.0005
"""Seconds after which a thread that waits for the interpreter has it handed over.

With Python's 0.005 a model whose many small calls each let go of the interpreter for a moment keeps the event loop out for a
second at a time on a busy machine: every such moment starts the 0.005 anew.
"""

Future = asyncio.Future["Response | None"]


class Job:
    """One request on its way to a thread and back.

    produce: makes the response, on the thread, or None where there is one already; it must not raise. future: the response, or None for a job that was abandoned.
    """

    future: Future
    threads: ModelThreads
    timer: asyncio.TimerHandle | None = None
    is_abandoned = False
    is_done = False
    was_begun = True
    is_again = False

    def __init__(self, produce: Callable[[], Response | None]) -> None:
        self.produce: Callable[[], Response | None] | None = produce
        self._claim = threading.Lock()

    def cancelled(self) -> bool:
        """Whether nobody waits for the response any more."""
        return self.is_abandoned

    def abandon(self) -> None:
        """See `ModelThreads.abandon`."""
        self.threads.abandon(self)

    def lower(self, deadline: float) -> None:
        """From its own thread: have it abandoned at that monotonic time, unless it is finished before."""
        self.threads.lower(self, deadline)

    def claim(self) -> bool:
        """Decide whether it is run: a thread that is first runs it, the loop that is first has it never run."""
        return self._claim.acquire(False)  # noqa: FBT003 - by keyword it costs a request twice as much

    def renew(self, produce: Callable[[], Response | None]) -> None:
        """Have it run once more, when it is claimed once more."""
        self.produce = produce
        self.is_again = True
        self._claim = threading.Lock()


class ModelThreads:
    """`count` daemon threads that run jobs in the order in which they came.

    stuck_after: seconds that a thread has to come back from a job once that is abandoned; else `report` is called, on the
    loop. 0: as long as it likes.
    """

    def __init__(self, count: int, stuck_after: float = 0.0, report: Callable[[], None] = lambda: None) -> None:
        self._count = count
        self._stuck_after = stuck_after
        self._report = report
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._under_way = 0

    @property
    def waiting(self) -> int:
        """Jobs for which there is no thread yet; that many threads are idle where it is negative."""
        return self._under_way - self._count

    def run(self, job: Job) -> Future:
        """Have a thread run the job."""
        loop = self._loop or self._start()
        job.threads = self
        job.future = loop.create_future()
        self._under_way += 1
        self._jobs.put(job)
        return job.future

    def abandon(self, job: Job) -> None:
        """Stop waiting for a job, whose future then has None. One that was not begun is never run."""
        if job.is_abandoned:
            return
        job.is_abandoned = True
        if job.claim():
            self._under_way -= 1
            job.was_begun = job.is_again
            job.produce = None
        elif self._stuck_after and not job.is_done:
            assert self._loop is not None
            self._loop.call_later(self._stuck_after, self._check, job)
        if not job.future.done():
            job.future.set_result(None)

    def limit(self, job: Job, deadline: float) -> None:
        """On the loop: abandon the job at that monotonic time, unless it is finished before."""
        if job.timer is not None:
            job.timer.cancel()
        if not job.future.done():
            assert self._loop is not None
            job.timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self.abandon, job)

    def lower(self, job: Job, deadline: float) -> None:
        """As `limit`, from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.limit, job, deadline)

    def close(self) -> None:
        """Let the threads end after the jobs they have."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _start(self) -> asyncio.AbstractEventLoop:
        # In the worker and on its loop: threads do not survive a fork.
        self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(min(_SWITCH, sys.getswitchinterval()))
        for number in range(self._count):
            threading.Thread(target=self._work, name=f"model-{number}", daemon=True).start()
        return self._loop

    def _work(self) -> None:
        loop = self._loop
        assert loop is not None
        with suppress(RuntimeError):  # the loop is closed: the worker is leaving
            while (job := self._jobs.get()) is not None:
                if job.claim():
                    self._run(loop, job)

    def _run(self, loop: asyncio.AbstractEventLoop, job: Job) -> None:
        assert job.produce is not None
        response = job.produce()
        job.produce = None  # it holds the request, which may hold the job
        if response.__class__ is not Response:
            self._go_on(loop, job, response)
            return
        assert response is not None
        source = response.stream
        if source is None or isinstance(source, AsyncIterator):
            job.is_done = True
            loop.call_soon_threadsafe(self._deliver, job, response)
            return
        parts = Parts(loop, lambda: self.abandon(job))
        response.stream = parts
        loop.call_soon_threadsafe(_hand_over, job, response)
        parts.pump(source)
        job.is_done = True
        loop.call_soon_threadsafe(self._settle)

    def _go_on(self, loop: asyncio.AbstractEventLoop, job: Job, response: Response | None) -> None:
        if isinstance(response, Later):
            response.outbox.left = lambda: loop.call_soon_threadsafe(self.abandon, job)
            loop.call_soon_threadsafe(_hand_over, job, response)
            response = response.work()
        if isinstance(response, Again):
            job.renew(response.produce)
            if not job.is_abandoned:
                self._jobs.put(job)
                return
            if not job.claim():  # whoever has abandoned it has seen that it waits
                return
        job.is_done = True
        loop.call_soon_threadsafe(self._settle)

    def _deliver(self, job: Job, response: Response) -> None:
        self._under_way -= 1
        if not job.future.done():
            job.future.set_result(response)

    def _settle(self) -> None:
        self._under_way -= 1

    def _check(self, job: Job) -> None:
        if not job.is_done:
            self._report()


def _hand_over(job: Job, response: Response) -> None:
    if not job.future.done():
        job.future.set_result(response)
    elif isinstance(response.stream, Parts):
        response.stream.cancel()
    elif isinstance(response, Later):
        response.outbox.leave()


class Parts:
    """An asynchronous iterator over what another thread's iterator gives, at most `_AHEAD` parts ahead of its reader.

    left: called on the loop when the reader leaves before the end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, left: Callable[[], object] = lambda: None) -> None:
        self._loop = loop
        self._left = left
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
        if not self._cancelled and not self._ended:
            self._left()
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

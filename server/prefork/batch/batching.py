"""BatchingInstance: an Instance whose model answers many requests with one call.

Requests may come from any number of threads and from event loops; the model is called on threads of its own, `threads`
of them, so that never more than so many calls are in it at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

from prefork.batch.ask import Ask, Terms, expired
from prefork.batch.batcher import Batcher
from prefork.batch.inbox import Inbox, Item
from prefork.batch.intake import Queue
from prefork.instance import Instance
from prefork.payload import ModelSpec, Payload
from prefork.repository.config import Batching

log = logging.getLogger("prefork")

_SWITCH = 0.0005
"""Seconds after which a thread that waits for the interpreter has it handed over: see `prefork.threads`."""

_PATIENCE = 10.0
"""Seconds that `close` waits for calls of the model that are under way."""


class BatchingInstance:
    """As `inner`, in batches.

    stuck_after: seconds that the model has to come back once somebody has given a running request up on an event loop; else
    `report` is called, there. 0: as long as it likes.
    """

    def __init__(self, inner: Instance, policy: Batching, threads: int = 1, *, stuck_after: float = 0.0) -> None:
        self._inner = inner
        self._terms = Terms(policy, inner.spec)
        self._queue = Queue(policy)
        self._count = max(1, threads)
        self._batcher = Batcher(self._queue, inner, policy, busy=self._set_busy)
        self._stuck_after = stuck_after
        self.report: Callable[[], None] = lambda: None
        sys.setswitchinterval(min(_SWITCH, sys.getswitchinterval()))
        self._threads = [
            threading.Thread(target=self._batcher.run, name=f"batch-{number}", daemon=True)
            for number in range(self._count)
        ]
        for thread in self._threads:
            thread.start()

    tells_cost = True
    """Whether each answer has its cost."""

    @property
    def spec(self) -> ModelSpec:
        """What the model takes."""
        return self._inner.spec

    @property
    def is_async(self) -> bool:
        """Always: a request that waits for its batch occupies no thread of the server's."""
        return True

    @property
    def waiting(self) -> int:
        """Requests that no batch has begun with."""
        return self._queue.waiting

    def infer(self, request: Payload) -> Iterator[Payload]:
        """The answers; this thread waits. Raises Unavailable when the queue is full or the time in it is up."""
        box: queue.SimpleQueue[Item] = queue.SimpleQueue()
        ask, inbox = self._enter(request, box.put)
        try:
            item = _first(box, ask)
            while True:
                answer, is_last = inbox.read(item)
                if answer is not None:
                    yield answer
                if is_last:
                    return
                item = box.get()
        finally:
            _leave(ask, inbox)

    async def infer_async(self, request: Payload) -> AsyncIterator[Payload]:
        """As `infer`, on the running event loop."""
        loop = asyncio.get_running_loop()
        box: asyncio.Queue[Item] = asyncio.Queue()

        def deliver(item: Item) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(box.put_nowait, item)

        ask, inbox = self._enter(request, deliver)
        timer = None if ask.late == math.inf else loop.call_later(max(0.0, ask.late - time.monotonic()), _expire, ask)
        try:
            while True:
                answer, is_last = inbox.read(await box.get())
                if answer is not None:
                    yield answer
                if is_last:
                    return
        finally:
            if timer is not None:
                timer.cancel()
            request.begun = request.cost is not None
            _leave(ask, inbox)
            if self._stuck_after and request.cost is not None and not inbox.is_done:
                loop.call_later(self._stuck_after, self._check, inbox)

    def ready(self) -> bool:
        """Whether it can be asked."""
        return not self._queue.is_closed and self._inner.ready()

    def close(self) -> None:
        """Answer what waits, then unload the model."""
        self._queue.close()
        until = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.warning("the model did not come back from a batch in %g s; it is closed all the same", _PATIENCE)
        self._batcher.close()
        self._inner.close()

    def _enter(self, request: Payload, deliver: Callable[[Item], None]) -> tuple[Ask, Inbox]:
        inbox = Inbox(deliver, request.cancelled)
        ask = self._terms.ask(request, inbox, arrived=time.monotonic())
        self._queue.put(ask)
        return ask, inbox

    def _set_busy(self, count: int) -> None:
        self._queue.idle = count < self._count

    def _check(self, inbox: Inbox) -> None:
        if not inbox.is_done:
            self.report()


def _first(box: queue.SimpleQueue[Item], ask: Ask) -> Item:
    if ask.late != math.inf:
        try:
            return box.get(timeout=max(0.0, ask.late - time.monotonic()))
        except queue.Empty:
            ask.refuse(expired())
    return box.get()


def _expire(ask: Ask) -> None:
    ask.refuse(expired())


def _leave(ask: Ask, inbox: Inbox) -> None:
    if ask.claim():
        inbox.is_done = True
    inbox.leave()

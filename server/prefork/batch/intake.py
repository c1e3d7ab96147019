"""Where a batcher gets its requests from: the contract, and the queue within one process that keeps it."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from typing import Protocol

from prefork.batch.ask import Ask, full
from prefork.batch.plan import limit
from prefork.errors import Unavailable
from prefork.repository.config import Batching

Line = OrderedDict[Ask, None]


class Intake(Protocol):
    """The requests that wait, of which a batcher takes as many as one batch can hold, and no more: others may take the rest.

    Only one thread of a batcher is in `take` at any time; `is_closed` may be read by all.
    """

    @property
    def is_closed(self) -> bool:
        """Whether nothing comes any more but what waits already. Once it is, it stays so."""
        ...

    def take(self, until: float) -> Ask | None:
        """The next request, the earliest of the most urgent level that has any.

        Waits for one until that time of the monotonic clock (not at all if that is over, for ever if it is infinite).
        None when it has come, not before, or at once when the intake is closed and nothing waits. What cannot be read, has
        hung up or is too late already is answered by the intake itself, and never given out.
        """
        ...


class Queue:
    """An Intake that requests are put into from any thread.

    idle: whether a thread is free for another batch; then as many requests as that can hold do not count as waiting.
    """

    def __init__(self, policy: Batching) -> None:
        self._policy = policy
        # Each level, and behind it those of it whose time is up and that are only to go behind the others.
        self._lines: list[Line] = [OrderedDict() for _ in range(2 * max(1, policy.priority_levels))]
        self._changed = threading.Condition()
        self.is_closed = False
        self.idle = True
        self._counts = [0] * (max(1, policy.priority_levels) + 1)
        self._shared = [at for at in range(len(self._counts)) if at not in policy.priority_queues]
        """The levels that have no queue of their own."""

    @property
    def waiting(self) -> int:
        """Requests that were put and that nobody has claimed."""
        return sum(self._counts)

    def put(self, ask: Ask) -> None:
        """Have it wait. Raises Unavailable when `max_queue` of its level do, and when the queue is closed."""
        with self._changed:
            if self.is_closed:
                raise Unavailable("the model is being unloaded")
            if self._is_full(ask.level):
                raise full()
            ask.claimed = self._forget
            self._lines[2 * ask.level - 2][ask] = None
            self._counts[ask.level] += 1
            self._changed.notify()

    def take(self, until: float) -> Ask | None:
        """See `Intake`."""
        with self._changed:
            while True:
                now = time.monotonic()
                ask = self._first(now)
                if ask is not None:
                    return ask
                left = until - now
                if self.is_closed or left <= 0:
                    return None
                self._changed.wait(None if left == math.inf else left)

    def close(self) -> None:
        """Take nothing more in."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _is_full(self, level: int) -> bool:
        most = self._policy.queue(level).max_queue
        if not most:
            return False
        levels = [level] if level in self._policy.priority_queues else self._shared
        room = most + (limit(self._policy) if self.idle else 0)
        return sum(self._counts[at] for at in levels) >= room

    def _first(self, now: float) -> Ask | None:
        for at in range(0, len(self._lines), 2):
            line, behind = self._lines[at], self._lines[at + 1]
            while line and (ask := next(iter(line))).delayed <= now:
                del line[ask]
                behind[ask] = None
            if line or behind:
                return (line or behind).popitem(last=False)[0]
        return None

    def _forget(self, ask: Ask) -> None:
        with self._changed:
            self._counts[ask.level] -= 1
            for line in self._lines[2 * ask.level - 2 : 2 * ask.level]:
                line.pop(ask, None)

"""How the start goes and how replacements go: whether the server is ready, goes on after a failure, and when it tries again.

Nothing here touches a process: what is decided follows from what workers have said, from how they ended and from a clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Protocol

from prefork.backoff import Backoff
from prefork.processes.balance import LOADED, Slot

_STEADY = 10.0
"""Seconds after which the death of a worker is no sign that its replacement will die as well."""


class Hand(Protocol):
    """A worker as the arbiter knows it; `spawned` is when it was forked, on the monotonic clock."""

    slot: Slot
    spawned: float


class Course:
    """Of one server. longest: the most seconds between two tries.

    is_ready: a worker has loaded, once. is_starting: not yet all of them. trouble: why the last replacement, or the last
    reload, could not be; empty once a worker has loaded that was forked later.
    """

    def __init__(self, longest: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_ready = False
        self.is_starting = True
        self._backoff = Backoff(longest, clock)
        self._clock = clock
        self._trouble = ""
        self._failed = 0.0

    @property
    def trouble(self) -> str:
        """What went wrong last, if it has not gone well since."""
        return self._trouble

    @trouble.setter
    def trouble(self, how: str) -> None:
        self._trouble = how
        self._failed = self._clock()

    @property
    def may_fork(self) -> bool:
        """Whether the next try may be made."""
        return self._backoff.is_over

    def look(self, workers: Collection[Hand], wanted: int) -> bool:
        """Note who has loaded; whether the server is ready, just now."""
        loaded = [each for each in workers if each.slot.has(LOADED)]
        if self._trouble and any(each.spawned > self._failed for each in loaded):
            self._trouble = ""
        was_ready, self.is_ready = self.is_ready, self.is_ready or bool(loaded)
        if len(workers) >= wanted and len(loaded) == len(workers):
            self.is_starting = False
        return self.is_ready and not was_ready

    def died(self, worker: Hand) -> None:
        """A worker is gone that had served."""
        if self._clock() - worker.spawned < _STEADY:
            self._backoff.fail()

    def failed(self, how: str, *, by_chance: bool) -> float | None:
        """A worker is gone that had not loaded: the seconds until the next try, or None where the server has to end.

        by_chance: it says nothing of the model, as when somebody has killed it; while the server starts, that is forgiven.
        """
        if not self.is_ready or (self.is_starting and not by_chance):
            return None
        self.trouble = how
        return self._backoff.fail()

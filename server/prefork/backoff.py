"""How long to wait before something that died is started again: not at all, then 0.5, 1, 2 ... seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

_FIRST = 0.5
_FORGIVEN = 60.0
"""Seconds without a failure after which the next one counts as the first."""


class Backoff:
    """Counts failures. `longest` is the most seconds between two tries."""

    def __init__(self, longest: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest = longest
        self._clock = clock
        self._failures = 0
        self._last = 0.0
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the next try may be made."""
        return self._clock() >= self._until

    def fail(self) -> float:
        """Count a failure; the seconds until the next try may be made."""
        now = self._clock()
        self._failures = 1 if now - self._last > _FORGIVEN else self._failures + 1
        self._last = now
        delay = 0.0 if self._failures == 1 else min(_FIRST * 2.0 ** min(self._failures - 2, 10), self._longest)
        self._until = now + delay
        return delay

"""Refuses requests whose time is up while everybody who could look is with the model."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable

from prefork.batch.ask import Ask, expired


class Sweep:
    """Watches requests from a daemon thread, which is started with the first one that can be late."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: list[Ask] = []
        self._is_started = False
        self._is_closed = False

    def watch(self, asks: Iterable[Ask]) -> None:
        """Refuse each of them at its time unless it is claimed before, and watch those of the last call no more."""
        timed = [ask for ask in asks if ask.late != math.inf]
        with self._changed:
            self._watched = timed
            if not timed:
                return
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._work, name="batch-timeouts", daemon=True).start()
            self._changed.notify()

    def close(self) -> None:
        """End the thread. Who is watched is not refused any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _work(self) -> None:
        while (ask := self._next()) is not None:
            ask.refuse(expired())

    def _next(self) -> Ask | None:
        """Wait for the next request to be late; None for the end."""
        with self._changed:
            while not self._is_closed:
                self._watched = [ask for ask in self._watched if not ask.is_claimed]
                first = min(self._watched, key=lambda ask: ask.late, default=None)
                left = math.inf if first is None else first.late - time.monotonic()
                if left <= 0:
                    return first
                self._changed.wait(None if left == math.inf else left)
            return None

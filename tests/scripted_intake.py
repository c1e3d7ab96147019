"""An intake that is told beforehand who comes when, on a clock that only it and the model move; and replies that are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prefork.batch import Ask
from prefork.errors import PreforkError
from prefork.payload import Payload


class Clock:
    """Seconds, as many as somebody has let pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Kept:
    """A Reply that keeps what it is told, and insists on being ended once."""

    def __init__(self, clock: Clock, cancelled_at: float = math.inf) -> None:
        self._clock = clock
        self._cancelled_at = cancelled_at
        self.answers: list[Payload] = []
        self.error: PreforkError | None = None
        self.is_over = False
        self.at = math.nan

    def is_cancelled(self) -> bool:
        return self._clock.now >= self._cancelled_at

    def answer(self, answer: Payload, *, last: bool) -> None:
        assert not self.is_over
        self.answers.append(answer)
        if last:
            self.end()

    def end(self) -> None:
        assert not self.is_over
        self.is_over = True
        self.at = self._clock.now

    def fail(self, error: PreforkError) -> None:
        self.error = error
        self.end()


class Scripted:
    """An Intake of requests that come at their `arrived`; it is closed when the last has come.

    Waiting lets time pass up to the next arrival, or to the time that is waited for.
    """

    def __init__(self, clock: Clock, asks: Sequence[Ask]) -> None:
        self._clock = clock
        self._coming = sorted(asks, key=lambda ask: ask.arrived)
        self._levels: dict[int, list[Ask]] = {}
        self.given: list[Ask] = []

    @property
    def is_closed(self) -> bool:
        self._arrive()
        return not self._coming

    def take(self, until: float) -> Ask | None:
        self._arrive()
        if not self._levels and self._coming and self._coming[0].arrived <= until:
            self._clock.now = self._coming[0].arrived
            self._arrive()
        if self._levels:
            return self._first()
        if self._coming:
            assert until != math.inf
            self._clock.now = max(self._clock.now, until)
        return None

    def _arrive(self) -> None:
        while self._coming and self._coming[0].arrived <= self._clock.now:
            ask = self._coming.pop(0)
            self._levels.setdefault(ask.level, []).append(ask)

    def _first(self) -> Ask:
        level = min(self._levels)
        ask = self._levels[level].pop(0)
        if not self._levels[level]:
            del self._levels[level]
        self.given.append(ask)
        return ask

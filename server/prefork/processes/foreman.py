"""What the arbiter is to do next: whom to fork, whom to tell to go, whom to send a signal.

It decides and does nothing: it knows workers by their records and the board, and the time by a clock.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from prefork.processes import due, overdue, roster
from prefork.processes.course import Course
from prefork.processes.due import Due
from prefork.settings import Settings

MARGIN = 1.0
"""Seconds past `graceful_timeout`, by which a worker has ended its requests itself, before it is killed."""

_PATIENCE = 30.0
_IMPATIENCE = 1.0
"""The most seconds between two tries to start a worker, the second under `reload`, where somebody mends the code."""


class Orders(msgspec.Struct):
    """What is to be done now.

    fork: how many workers to start. leave: those to be told to go. signals: what else to send to whom. is_ready: the server
    has just become ready.
    """

    fork: int
    leave: Sequence[Any]
    signals: list[tuple[Any, signal.Signals]]
    is_ready: bool


class Foreman:
    """Of one server. measure: a process's own bytes of memory."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        measure: Callable[[int], int | None] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._due = Due(settings, clock, measure)
        self.course = Course(_IMPATIENCE if settings.reload else _PATIENCE, clock)

    def orders(self, workers: Collection[Any], wanted: int) -> Orders:
        """What there is to do, so that there be `wanted` workers and none stays that is due."""
        self._due.look(workers)
        is_ready = self.course.look(workers, wanted)
        missing, leave = roster.plan(workers, wanted, self._settings.recycle_at_once)
        now = self._clock()
        for each in leave:
            each.leaving = each.due or due.SURPLUS
            each.deadline = now + self._settings.graceful_timeout + MARGIN
        signals = [(each, how) for each in workers if (how := self._signal(each, now)) is not None]
        return Orders(missing if self.course.may_fork else 0, leave, signals, is_ready)

    def _signal(self, worker: Any, now: float) -> signal.Signals | None:
        if worker.leaving:
            return signal.SIGKILL if now > worker.deadline else None
        return overdue.next_signal(worker, self._settings.load_timeout, now)

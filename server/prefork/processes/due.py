"""Why a worker is to be replaced: what it says on the board, what it has grown by, how long it has been there.

Nothing here touches a process: what is decided follows from the board, from a measure of memory and from a clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import Protocol

from prefork.processes.balance import LOADED, SPENT, STUCK, Slot
from prefork.processes.growth import Growth
from prefork.processes.spread import farthest
from prefork.settings import Settings

HUP = "HUP"
CODE = "its code has changed"
SURPLUS = "there is one too many"
OPERATOR = "operator"
_STUCK = "a model thread is stuck"
_RELOADS = {HUP, CODE}

WORDS = {HUP: "hup", CODE: "code", SURPLUS: "surplus", _STUCK: "stuck"}
"""What metrics call the reasons that a person reads otherwise."""

_SPREAD = 0.1
"""The part of `max_worker_age` by which a worker may be replaced earlier, to keep away from the others."""


class Term:
    """What is remembered of one worker: what it has said already, when its time is up, and what it has grown by."""

    def __init__(self) -> None:
        self.changes = 0
        self.asked = 0
        self.expires = math.inf
        self.growth: Growth | None = None
        self.why = ""


class Hand(Protocol):
    """A worker as the arbiter knows it: `due` says why it is to be replaced, `leaving` why it was told to go."""

    slot: Slot
    term: Term
    due: str
    leaving: str


class Due:
    """Gives workers their reason to go. measure: a process's own bytes of memory."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        measure: Callable[[int], int | None] | None = None,
    ) -> None:
        self._memory = settings.max_worker_memory
        self._age = settings.max_worker_age
        self._clock = clock
        self._measure = measure

    def look(self, workers: Collection[Hand]) -> None:
        """Note what is new of each."""
        for worker in workers:
            if worker.slot.asked > worker.term.asked:
                worker.term.asked = worker.slot.asked
                demand(workers, OPERATOR)
            if worker.slot.changes > worker.term.changes:
                worker.term.changes = worker.slot.changes
                worker.due = CODE
            if worker.slot.has(LOADED) and not worker.leaving:
                self._begin(worker, workers)
                worker.due = worker.due or self._reason(worker)

    def _begin(self, worker: Hand, workers: Collection[Hand]) -> None:
        term = worker.term
        if self._age and term.expires == math.inf:
            others = [each.term.expires for each in workers if each.term.expires != math.inf]
            latest = self._clock() + self._age
            term.expires = farthest(latest - _SPREAD * self._age, latest, others)
        if self._memory and term.growth is None:
            term.growth = Growth(worker.slot.pid, self._measure, self._clock)

    def _reason(self, worker: Hand) -> str:
        if worker.slot.has(SPENT):
            return "max_requests"
        if worker.slot.has(STUCK):
            return _STUCK
        term = worker.term
        if term.growth is not None and (grown := term.growth.bytes) > self._memory:
            term.why = f", it has grown by {grown >> 20} MB"
            return "max_worker_memory"
        return "max_worker_age" if self._clock() >= term.expires else ""


def demand(workers: Collection[Hand], reason: str) -> None:
    """Have every worker replaced that is not to be anyway."""
    for each in workers:
        if not each.leaving:
            each.due = each.due or reason


def give_up_reload(workers: Collection[Hand]) -> bool:
    """Let those stay that were to go for new code, which does not load; whether there were any."""
    found = [each for each in workers if each.due in _RELOADS and not each.leaving]
    for each in found:
        each.due = ""
    return bool(found)

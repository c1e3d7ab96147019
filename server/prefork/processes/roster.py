"""Who is to be forked and who is to go: a replacement comes first, and one worker at a time is replaced."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

from prefork.processes.balance import LOADED, Slot


class Hand(Protocol):
    """A worker, as the arbiter knows it: `due` says why it is to be replaced, `leaving` why it was told to go."""

    age: int
    slot: Slot
    due: str
    leaving: str


Worker = TypeVar("Worker", bound=Hand)


def plan(workers: Collection[Worker], wanted: int) -> tuple[int, Sequence[Worker]]:
    """How many workers to fork now, and which to tell to go."""
    staying = sorted((each for each in workers if not each.leaving), key=lambda each: each.age)
    due = [each for each in staying if each.due]
    spare = len(staying) - wanted
    if not due:
        return max(0, -spare), staying[: max(0, spare)]
    if any(each.leaving and each.due for each in workers):
        return max(0, -spare), []
    if spare <= 0:
        return 1 - spare, []
    others_are_ready = all(each.slot.has(LOADED) for each in staying if not each.due)
    return 0, due[:1] if others_are_ready else []

"""Who is to be forked and who is to go: a replacement comes first, and only so many workers are replaced at a time."""

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


def plan(workers: Collection[Worker], wanted: int, at_once: int = 1) -> tuple[int, Sequence[Worker]]:
    """How many workers to fork now, and which to tell to go.

    at_once: how many may be out at a time: told to go, and still there to finish what they have.
    """
    staying = sorted((each for each in workers if not each.leaving), key=lambda each: each.age)
    due = [each for each in staying if each.due]
    spare = len(staying) - wanted
    if not due:
        # Who still loads is missed by nobody.
        surplus = sorted(staying, key=lambda each: each.slot.has(LOADED))
        return max(0, -spare), surplus[: max(0, spare)]
    out = sum(bool(each.leaving and each.due) for each in workers)
    room = max(0, min(at_once - out, len(due)))
    loading = sum(not each.slot.has(LOADED) for each in staying if not each.due)
    return max(0, room - spare, -spare), due[: max(0, min(room, spare - loading))]

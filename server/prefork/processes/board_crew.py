"""What the board tells a worker's endpoints of its colleagues, and what the worker tells the board."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prefork.crew import Colleague
from prefork.processes import balance


class BoardCrew:
    """A Crew out of the board.

    stuck: called when a model thread of this worker does not come back; recycle: to have the arbiter replace all workers.
    """

    def __init__(
        self, board: balance.Board, stuck: Callable[[], None], recycle: Callable[[], None] = lambda: None
    ) -> None:
        self._board = board
        self._stuck = stuck
        self._recycle = recycle

    @property
    def is_draining(self) -> bool:
        """Whether the server has been told to stop."""
        return self._board.draining

    @property
    def trouble(self) -> str:
        """Why the last replacement of a worker could not load."""
        return self._board.trouble

    def colleagues(self) -> Sequence[Colleague]:
        """Every worker."""
        return [Colleague(slot.pid, _state(slot), slot.since, slot.due) for slot in self._board.slots()]

    def report_stuck(self) -> None:
        """A model thread of this worker does not come back."""
        self._stuck()

    def recycle(self) -> Sequence[int]:
        """Have every worker replaced that is not leaving; their process ids."""
        pids = [slot.pid for slot in self._board.slots() if not slot.is_leaving]
        self._recycle()
        return pids


def _state(slot: balance.Slot) -> str:
    if slot.is_leaving:
        return "leaving"
    return "ready" if slot.has(balance.LOADED) else "loading"

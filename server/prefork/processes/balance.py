"""What the workers of one server know of each other, and the rule by which they share connections.

The board is memory that the arbiter maps before it forks: one slot of sixteen int64 a worker, then two texts. A slot is two
lines of the processor's cache, so that no worker's writing slows another one's down.

    0 pid          of the worker; 0: the slot is free                    written by the arbiter
    1 state        LOADED | ACCEPTING | SERVICE | SPENT | STUCK          written by the worker, as is what follows
    2 connections  open at this moment
    3 turns        how often it came round to accepting
    4 changes      of the user's code that it has seen (`reload`)
    5 since        when it began to load or had loaded, in seconds since the epoch
    6 due          why it is to be replaced, a number out of REASONS     written by the arbiter
    7 leaving      whether it was told to go                             written by the arbiter
    8 asked        how often an operator has asked for a recycle        written by the worker

Each cell has one writer at a time, so nothing needs a lock. The arbiter clears a slot once its worker is reaped.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator

LOADED = 1
"""Its model is loaded and its signals mean what they mean to gunicorn's users."""
ACCEPTING = 2
SERVICE = 4
"""The user's class has a `custom_service`."""
SPENT = 8
"""It has answered `max_requests` requests and asks for a replacement."""

STUCK = 16
"""One of its model threads does not come back; it asks for a replacement."""

REASONS = (
    "",
    "HUP",
    "its code has changed",
    "max_requests",
    "max_worker_memory",
    "max_worker_age",
    "operator",
    "a model thread is stuck",
    "there is one too many",
    "other",
)
"""Why a worker is to be replaced, as far as readiness tells it."""

PATIENCE = 0.1
"""Seconds for which a worker with fewer connections may leave one waiting before the others stop counting on it."""

DOUBT = 0.02
"""Seconds for which the count of a worker with far more connections is doubted, while it makes no turn."""

_FAR = 2
_SLOTS = 1024
_WIDTH = 16
_PID, _STATE, _CONNECTIONS, _TURNS, _CHANGES, _SINCE, _DUE, _LEAVING, _ASKED = range(9)
_HEADER = _SLOTS * _WIDTH
_USED, _STOPPING, _LENGTH, _FAILED, DRAINING, _TROUBLE_LENGTH = range(_HEADER, _HEADER + 6)
_TEXT = (_HEADER + _WIDTH) * 8
_TEXT_SIZE = 8192
_TROUBLE = _TEXT + _TEXT_SIZE
_TROUBLE_SIZE = 1024


class Board:
    """The slots, the word that the whole server stops, and what to tell the user once it is ready."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _TROUBLE + _TROUBLE_SIZE)
        self.cells = memoryview(self._memory)[:_TEXT].cast("q")

    def take(self) -> Slot:
        """A slot for a worker that is about to be forked. Raises RuntimeError past 1024 workers."""
        cells = self.cells
        free = next((at for at in range(0, _HEADER, _WIDTH) if not cells[at + _PID]), None)
        if free is None:
            raise RuntimeError(f"there is room for {_SLOTS} workers")
        cells[free + _PID] = -1
        cells[free + _SINCE] = int(time.time())
        cells[_USED] = max(cells[_USED], free + _WIDTH)
        return Slot(self, free)

    def accepting(self) -> Iterator[int]:
        """The places of the slots whose workers accept connections."""
        cells = self.cells
        return (at for at in range(0, cells[_USED], _WIDTH) if cells[at + _STATE] & ACCEPTING)

    def slots(self) -> Iterator[Slot]:
        """Those of all workers, in the order of their places."""
        return (Slot(self, at) for at in range(0, self.cells[_USED], _WIDTH) if self.cells[at + _PID] > 0)

    @property
    def draining(self) -> bool:
        """Whether the server has been told to stop, and may still accept for a while."""
        return bool(self.cells[DRAINING])

    def drain(self) -> None:
        """Say that the server has been told to stop."""
        self.cells[DRAINING] = 1

    @property
    def stopping(self) -> bool:
        """Whether the whole server stops, so that whoever waits in the backlog has nobody else to wait for."""
        return bool(self.cells[_STOPPING])

    def stop(self) -> None:
        """Say that the whole server stops."""
        self.cells[_STOPPING] = 1

    def is_first_failure(self) -> bool:
        """Whether no other worker has failed to load since `forget_failure`, so that one traceback is enough."""
        first = not self.cells[_FAILED]
        self.cells[_FAILED] = 1
        return first

    def forget_failure(self) -> None:
        """Have the next failure told in full again."""
        self.cells[_FAILED] = 0

    @property
    def trouble(self) -> str:
        """Why the last replacement could not load; empty when it could."""
        return self._memory[_TROUBLE : _TROUBLE + self.cells[_TROUBLE_LENGTH]].decode(errors="ignore")

    @trouble.setter
    def trouble(self, text: str) -> None:
        encoded = text.encode()[:_TROUBLE_SIZE]
        self._memory[_TROUBLE : _TROUBLE + len(encoded)] = encoded
        self.cells[_TROUBLE_LENGTH] = len(encoded)

    @property
    def summary(self) -> str:
        """What the workers have to tell the user; they all say the same."""
        return self._memory[_TEXT : _TEXT + self.cells[_LENGTH]].decode(errors="ignore")

    @summary.setter
    def summary(self, text: str) -> None:
        encoded = text.encode()[:_TEXT_SIZE]
        self._memory[_TEXT : _TEXT + len(encoded)] = encoded
        self.cells[_LENGTH] = len(encoded)


class Slot:
    """One worker's part of the board."""

    def __init__(self, board: Board, at: int) -> None:
        self.board = board
        self.at = at
        self._cells = board.cells

    def free(self) -> None:
        """Clear it: its worker is gone."""
        for cell in range(self.at + _WIDTH - 1, self.at - 1, -1):
            self._cells[cell] = 0

    @property
    def since(self) -> int:
        """When the worker began to load or, once it has loaded, when it had; in seconds since the epoch."""
        return self._cells[self.at + _SINCE]

    def loaded(self, state: int) -> None:
        """Say that the model has loaded, and `state`."""
        self._cells[self.at + _SINCE] = int(time.time())
        self.say(LOADED | state)

    @property
    def due(self) -> str:
        """Why the worker is to be replaced; empty when it is not."""
        return REASONS[self._cells[self.at + _DUE]]

    @property
    def is_leaving(self) -> bool:
        """Whether the worker was told to go."""
        return bool(self._cells[self.at + _LEAVING])

    def condemn(self, due: str, *, leaving: bool) -> None:
        """Say why the worker is to be replaced, and whether it was told to go."""
        self._cells[self.at + _DUE] = REASONS.index(due) if due in REASONS else len(REASONS) - 1
        self._cells[self.at + _LEAVING] = leaving

    def has(self, state: int) -> bool:
        """Whether the worker has said all of `state`."""
        return self._cells[self.at + _STATE] & state == state

    def say(self, state: int) -> None:
        """Add to the worker's state."""
        self._cells[self.at + _STATE] |= state

    def unsay(self, state: int) -> None:
        """Take from the worker's state."""
        self._cells[self.at + _STATE] &= ~state

    @property
    def pid(self) -> int:
        """The worker's process."""
        return self._cells[self.at + _PID]

    @pid.setter
    def pid(self, pid: int) -> None:
        self._cells[self.at + _PID] = pid

    @property
    def connections(self) -> int:
        """The worker's open connections."""
        return self._cells[self.at + _CONNECTIONS]

    @connections.setter
    def connections(self, count: int) -> None:
        self._cells[self.at + _CONNECTIONS] = count

    @property
    def changes(self) -> int:
        """How often the worker has seen the user's code change."""
        return self._cells[self.at + _CHANGES]

    def changed(self) -> None:
        """Count a change of the user's code."""
        self._cells[self.at + _CHANGES] += 1

    @property
    def asked(self) -> int:
        """How often an operator has asked this worker to have all workers replaced."""
        return self._cells[self.at + _ASKED]

    def ask(self) -> None:
        """Count such a request."""
        self._cells[self.at + _ASKED] += 1

    def turn(self) -> None:
        """Show the others that this worker comes round to accepting."""
        self._cells[self.at + _TURNS] += 1


class Gate:
    """Whether a worker may accept: while no other that accepts has fewer connections, from eight on an eighth fewer.

    The eighth keeps workers from waiting for each other at every one of many short connections.

    A worker that has fewer and yet leaves a connection waiting for PATIENCE is busy with its model; it is not waited for
    again until it has made a turn. So it delays one newcomer, once. A worker that has far more may only not have come
    round to noticing that its clients have left: between two connections that are accepted on its account it has to make
    a turn, within DOUBT.

    is_shared: whether the workers accept from one queue; where each has its own, nobody waits for anybody.
    """

    def __init__(self, slot: Slot, clock: Callable[[], float] = time.monotonic, *, is_shared: bool = True) -> None:
        self._slot = slot
        self._cells = slot.board.cells
        self._clock = clock
        self._is_shared = is_shared
        self._waits: dict[int, tuple[int, float]] = {}  # slot: its turns and the time when we began to wait for it
        self._stuck: dict[int, int] = {}  # slot: its turns when we gave up
        self._trusted: dict[int, int] = {}  # slot: its turns when we last accepted because it has far more

    def may_accept(self) -> bool:
        """Whether this worker is next; a connection must be waiting."""
        if not self._is_shared:
            return True
        cells = self._cells
        mine = cells[self._slot.at + _CONNECTIONS]
        enough = mine - mine // 8
        trusted: dict[int, int] = {}
        for at in self._slot.board.accepting():
            count, turns = cells[at + _CONNECTIONS], cells[at + _TURNS]
            if count < enough and self._is_awaited(at, turns, PATIENCE):
                return False
            if count > mine + _FAR:
                if self._trusted.get(at) == turns and self._is_awaited(at, turns, DOUBT):
                    return False
                trusted[at] = turns
        self._trusted = trusted
        self._waits.clear()
        return True

    def calm(self) -> None:
        """Nobody waits any more: whoever was waited for owes nothing."""
        self._waits.clear()

    def _is_awaited(self, at: int, turns: int, seconds: float) -> bool:
        if self._stuck.get(at) == turns:
            return False
        now = self._clock()
        seen, since = self._waits.get(at, (None, now))
        if seen != turns:
            self._waits[at] = (turns, now)
            return True
        if now - since < seconds:
            return True
        self._stuck[at] = turns
        return False

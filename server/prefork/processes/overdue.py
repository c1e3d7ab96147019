"""What becomes of a worker whose model takes longer to load than `load_timeout`: first its stacks, then its end.

The arbiter does it, since the worker may hang where no Python of its own runs any more.
"""

from __future__ import annotations

import signal
from typing import Protocol

from prefork.processes.balance import LOADED, Slot

_WRITES = 1.0
"""Seconds that a worker has to write its stacks."""


class Hand(Protocol):
    """A worker as the arbiter knows it. overdue: the monotonic time at which it was told to write its stacks; 0 until then."""

    slot: Slot
    spawned: float
    overdue: float


def next_signal(worker: Hand, limit: float, now: float) -> signal.Signals | None:
    """What to send a worker at that time, if anything. limit: seconds that a model may load; 0 for as long as it likes."""
    if not limit or now - worker.spawned <= limit or worker.slot.has(LOADED):
        return None
    if not worker.overdue:
        worker.overdue = now
        return signal.SIGABRT
    return signal.SIGKILL if now - worker.overdue >= _WRITES else None

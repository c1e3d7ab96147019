"""What a worker gets that loads for too long."""

from __future__ import annotations

import signal

import pytest

from prefork.processes.balance import LOADED, Board
from prefork.processes.overdue import next_signal


class Hand:
    def __init__(self):
        self.slot = Board().take()
        self.spawned = 100.0
        self.overdue = 0.0


def test_first_its_stacks_then_its_end():
    """Nothing within the limit; then it is told to write its stacks, has a second for that, and is killed."""
    worker = Hand()
    assert next_signal(worker, 10, 110.0) is None
    assert next_signal(worker, 10, 110.1) == signal.SIGABRT
    assert next_signal(worker, 10, 110.2) is None
    assert next_signal(worker, 10, 111.2) == signal.SIGKILL


@pytest.mark.parametrize("limit", [0, 10])
def test_who_has_loaded_or_may_take_forever_gets_nothing(limit):
    """The limit is on loading; 0 is none."""
    worker = Hand()
    if limit:
        worker.slot.say(LOADED)
    assert next_signal(worker, limit, 10**9) is None


def test_who_loads_at_the_last_moment_stays():
    """A worker that is done while it writes its stacks is not killed."""
    worker = Hand()
    assert next_signal(worker, 10, 111.0) == signal.SIGABRT
    worker.slot.say(LOADED)
    assert next_signal(worker, 10, 113.0) is None

"""Who is forked and who goes, from written situations."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.processes.balance import LOADED, Board
from prefork.processes.roster import plan

AGES = count()


class Hand:
    def __init__(self, *, loaded=True, due="", leaving=""):
        self.age = next(AGES)
        self.slot = Board().take()
        self.due = due
        self.leaving = leaving
        if loaded:
            self.slot.say(LOADED)


def fresh():
    return Hand()


def loading():
    return Hand(loaded=False)


def due():
    return Hand(due="HUP")


def leaving():
    return Hand(due="HUP", leaving="HUP")


@pytest.mark.parametrize(
    ("crew", "wanted", "forked", "told"),
    [
        ([], 2, 2, 0),  # the start
        ([loading, loading], 2, 0, 0),
        ([fresh], 2, 1, 0),  # one has died
        ([fresh, fresh, fresh], 2, 0, 1),  # TTOU
        ([due, due], 2, 1, 0),  # HUP: a replacement first
        ([due, due, loading], 2, 0, 0),  # it loads
        ([due, due, fresh], 2, 0, 1),  # it is there: the oldest may go
        ([leaving, due, fresh], 2, 0, 0),  # one at a time
        ([due, fresh], 2, 1, 0),  # it has gone: the next replacement
        ([due], 1, 1, 0),
        ([leaving, fresh], 1, 0, 0),
        ([leaving], 1, 1, 0),
        ([due, due, fresh], 1, 0, 1),  # HUP and TTOU at once
    ],
)
def test_the_plan_for_a_situation(crew, wanted, forked, told):
    """A replacement is forked before its predecessor is told to go, and one worker at a time is replaced."""
    workers = [make() for make in crew]
    missing, going = plan(workers, wanted)
    assert (missing, len(going)) == (forked, told)
    assert list(going) == sorted(going, key=lambda each: each.age)


@given(st.integers(1, 5))
def test_a_reload_is_never_short_of_a_worker(wanted):
    """Followed to its end, a reload replaces everybody, with `wanted` loaded workers or more at every step."""
    workers = [Hand(due="HUP") for _ in range(wanted)]
    for _ in range(10 * wanted):
        missing, going = plan(workers, wanted)
        for each in going:
            each.leaving = each.due
        assert sum(each.slot.has(LOADED) and not each.leaving for each in workers) >= wanted
        for each in workers:
            each.slot.say(LOADED)
        workers = [each for each in workers if not each.leaving] + [Hand(loaded=False) for _ in range(missing)]
    assert len(workers) == wanted
    assert not any(each.due for each in workers)

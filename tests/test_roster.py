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


@pytest.mark.parametrize(
    ("crew", "wanted", "forked", "told"),
    [
        ([due, due, due], 3, 2, 0),  # two replacements first
        ([due, due, due, loading, loading], 3, 0, 0),
        ([due, due, due, fresh, loading], 3, 0, 1),  # one is there: one may go
        ([due, due, leaving, fresh, loading], 3, 0, 0),
        ([due, due, leaving, fresh, fresh], 3, 0, 1),
        ([due, leaving, leaving, fresh, fresh], 3, 0, 0),  # two are out
        ([due, leaving, fresh, fresh], 3, 1, 0),
        ([due], 1, 1, 0),  # no more than there are
        ([due, fresh], 3, 2, 0),  # one has died, and one is due
    ],
)
def test_the_plan_for_two_at_once(crew, wanted, forked, told):
    """So many replacements load, and so many workers are out, at a time."""
    missing, going = plan([make() for make in crew], wanted, at_once=2)
    assert (missing, len(going)) == (forked, told)


def test_the_surplus_that_still_loads_goes_first():
    """When a reload is given up while another replacement loads, it is that one that is too many."""
    workers = [fresh(), fresh(), loading()]
    assert plan(workers, 2) == (0, [workers[2]])


@given(st.integers(1, 5), st.integers(1, 6))
def test_a_reload_is_never_short_of_a_worker(wanted, at_once):
    """Followed to its end, a reload replaces everybody, with `wanted` loaded workers or more at every step."""
    workers = [Hand(due="HUP") for _ in range(wanted)]
    for _ in range(10 * wanted):
        missing, going = plan(workers, wanted, at_once)
        for each in going:
            each.leaving = each.due
        assert sum(bool(each.leaving) for each in workers) <= at_once
        assert len(workers) + missing <= wanted + at_once
        assert sum(each.slot.has(LOADED) and not each.leaving for each in workers) >= wanted
        for each in workers:
            each.slot.say(LOADED)
        workers = [each for each in workers if not each.leaving] + [Hand(loaded=False) for _ in range(missing)]
    assert len(workers) == wanted
    assert not any(each.due for each in workers)

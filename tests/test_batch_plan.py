"""plan: what is executed now, what is refused, and when to look again, as tables of waiting requests."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.batch.plan import Waiting, decide, level, limit, patience
from prefork.repository.config import Batching

INF = math.inf


def policy(size: int = 4, **more: Any) -> Batching:
    return Batching(max_batch_size=size, **more)


def waiting(*rows: int, key: Any = "k") -> list[Waiting]:
    """Requests of one key that have come at 0, 1, 2, ... seconds."""
    return [Waiting(count, key, arrived=float(at)) for at, count in enumerate(rows)]


def batch_of(queue: list[Waiting], rules: Batching, now: float = 100.0, **more: bool) -> list[int]:
    """The places in the queue of the requests that make the batch."""
    places = {id(one): at for at, one in enumerate(queue)}
    return [places[id(one)] for one in decide(queue, rules, now, **more).batch]


@pytest.mark.parametrize(
    ("rows", "rules", "batch"),
    [
        ((1, 1, 1), policy(4), [0, 1, 2]),
        ((1, 1, 1, 1, 1), policy(4), [0, 1, 2, 3]),
        ((3, 2, 1), policy(4), [0]),
        ((2, 2, 1), policy(4), [0, 1]),
        ((9, 1), policy(4), [0]),
        ((1, 9, 1), policy(4), [0]),
        ((4, 1), policy(4), [0]),
        ((1, 1), policy(0), [0]),
        ((1,) * 11, policy(16, preferred_batch_sizes=(4, 8)), list(range(8))),
        ((1,) * 16, policy(16, preferred_batch_sizes=(4,)), list(range(4))),
        ((3, 3, 3), policy(16, preferred_batch_sizes=(4, 8)), [0, 1, 2]),
        ((3, 1, 3), policy(16, preferred_batch_sizes=(4, 8)), [0, 1]),
    ],
)
def test_a_batch_is_the_first_and_what_fits_to_it(rows, rules, batch):
    """Whole requests in their order, up to the limit, or the largest preferred size; one beyond the limit runs alone."""
    assert batch_of(waiting(*rows), rules) == batch


def test_those_of_another_key_are_passed_over():
    """What does not fit to the first does not keep those behind it from joining, and is the first of the next batch."""
    queue = [Waiting(1, key) for key in "abab"]
    assert batch_of(queue, policy()) == [0, 2]
    assert batch_of([queue[1], queue[3]], policy()) == [0, 1]


def test_what_fits_to_nobody_runs_alone():
    """A request without a key is a batch of its own, and at once."""
    queue = [Waiting(1, None, arrived=0.0), Waiting(1, None, arrived=0.0)]
    assert batch_of(queue, policy(max_batch_delay=10**6), now=0.0) == [0]


@pytest.mark.parametrize(
    ("rows", "now", "batch", "look"),
    [
        ((1, 1), 0.5, [], 2.0),
        ((1, 1), 2.0, [0, 1], 2.0),
        ((1, 1, 1, 1), 0.5, [0, 1, 2, 3], 0.5),
        ((1, 4), 0.5, [0], 0.5),
    ],
)
def test_waiting_for_company(rows, now, batch, look):
    """A batch that has room waits until its earliest request has waited for `max_batch_delay`; a full one does not."""
    queue = waiting(*rows)
    rules = policy(4, max_batch_delay=2_000_000)
    decision = decide(queue, rules, now)
    assert [queue.index(one) for one in decision.batch] == batch
    assert decision.look == look


def test_preferred_sizes_are_not_waited_beyond():
    """A preferred size is executed at once, and what makes none waits."""
    rules = policy(16, max_batch_delay=2_000_000, preferred_batch_sizes=(4,))
    assert batch_of(waiting(2, 2), rules, now=1.0) == [0, 1]
    assert batch_of(waiting(2, 1), rules, now=1.0) == []


def test_nothing_is_waited_for_when_nothing_comes():
    """Company is not waited for when the queue is closed or what was taken is all that one batch may hold."""
    rules = policy(4, max_batch_delay=2_000_000)
    assert batch_of(waiting(1), rules, now=0.0) == []
    assert batch_of(waiting(1), rules, now=0.0, full=True) == [0]


def test_urgent_ones_go_first():
    """Level 1 is before level 2, and within a level the earlier is first; a batch may have both."""
    queue = [Waiting(1, "a", level=2), Waiting(1, "a", level=1), Waiting(1, "b", level=2), Waiting(1, "a", level=1)]
    assert batch_of(queue, policy(3)) == [1, 3, 0]


def test_a_late_one_is_refused():
    """Once its time is up a request is refused, not executed, and the plan looks again when the next time is up."""
    queue = [Waiting(1, "k", late=5.0), Waiting(1, "k", arrived=4.0, late=7.0)]
    decision = decide(queue, policy(4, max_batch_delay=10_000_000), 5.0)
    assert (decision.batch, decision.late, decision.look) == ([], queue[:1], 7.0)


def test_a_delayed_one_goes_behind_the_others():
    """With `timeout_action: delay` one that has waited too long goes behind the others of its level, not of lower ones."""
    queue = [Waiting(1, "a", delayed=5.0), Waiting(1, "b"), Waiting(1, "c", level=2)]
    assert batch_of(queue, policy(), now=4.0) == [0]
    assert batch_of(queue, policy(), now=5.0) == [1]
    assert batch_of([queue[0], queue[2]], policy(), now=5.0) == [0]


def test_an_empty_queue_needs_no_look():
    """Where nobody waits there is nothing to do until somebody comes."""
    assert decide([], policy(), 1.0) == ([], [], INF)


@pytest.mark.parametrize(
    ("parameters", "rules", "expected"),
    [
        (None, policy(), 1),
        ({"priority": 1}, policy(), 1),
        (None, policy(priority_levels=3, default_priority=2), 2),
        ({"priority": 0}, policy(priority_levels=3, default_priority=2), 2),
        ({"priority": 3}, policy(priority_levels=3, default_priority=2), 3),
        ({"priority": 4}, policy(priority_levels=3, default_priority=2), 2),
        ({"priority": "1"}, policy(priority_levels=3, default_priority=2), 1),
        ({"priority": True}, policy(priority_levels=3, default_priority=2), 2),
        ({"priority": -1}, policy(priority_levels=3), 3),
        ({"priority": "x"}, policy(priority_levels=3, default_priority=9), 3),
    ],
)
def test_levels(parameters, rules, expected):
    """`priority` chooses a level that there is; anything else is the default, or the least urgent."""
    assert level(parameters, rules) == expected


@pytest.mark.parametrize(
    ("parameters", "rules", "seconds"),
    [
        (None, policy(), INF),
        (None, policy(queue_timeout=500_000), 0.5),
        ({"timeout": 100_000}, policy(queue_timeout=500_000), 0.1),
        ({"timeout": "100000"}, policy(queue_timeout=500_000), 0.1),
        ({"timeout": 900_000}, policy(queue_timeout=500_000), 0.5),
        ({"timeout": 0}, policy(queue_timeout=500_000), 0.5),
        ({"timeout": 100_000}, policy(), 0.1),
        ({"timeout": 100_000}, policy(queue_timeout=500_000, allow_timeout_override=False), 0.5),
        ({"timeout": 100_000}, policy(allow_timeout_override=False), INF),
    ],
)
def test_patience(parameters, rules, seconds):
    """A request's own `timeout` can only lower the policy's, and only where that allows it."""
    assert patience(parameters, rules) == seconds


@pytest.mark.parametrize(
    ("rules", "rows"),
    [
        (policy(16), 16),
        (policy(16, preferred_batch_sizes=(4, 8)), 8),
        (policy(4, preferred_batch_sizes=(8,)), 4),
        (policy(0), 1),
    ],
)
def test_what_is_worth_taking(rules, rows):
    """No more rows are taken out of a shared queue than the largest wanted batch has."""
    assert limit(rules) == rows


WAITING = st.builds(
    Waiting,
    st.integers(1, 6),
    st.sampled_from(["a", "b", None]),
    level=st.integers(1, 3),
    arrived=st.integers(0, 10).map(float),
    late=st.sampled_from([3.0, 8.0, INF]),
    delayed=st.sampled_from([2.0, INF]),
)
POLICIES = st.builds(
    Batching,
    max_batch_size=st.integers(1, 8),
    max_batch_delay=st.sampled_from([0, 3_000_000]),
    preferred_batch_sizes=st.lists(st.integers(1, 8), max_size=3).map(tuple),
)


@given(st.lists(WAITING, max_size=12), POLICIES, st.integers(0, 20).map(float))
def test_every_decision_is_sound(queue, rules, now):
    """Nobody is both executed and refused, no batch is over the limit or mixed, and there is always a time to go on."""
    decision = decide(queue, rules, now)
    assert decision.late == [one for one in queue if one.late <= now]
    assert not {id(one) for one in decision.batch} & {id(one) for one in decision.late}
    assert len(decision.batch) <= 1 or sum(one.rows for one in decision.batch) <= rules.max_batch_size
    assert len(decision.batch) <= 1 or {one.key for one in decision.batch} in ({"a"}, {"b"})
    if len(queue) > len(decision.late) and not decision.batch:
        assert now < decision.look < INF
        assert decide(queue, rules, decision.look) != decision

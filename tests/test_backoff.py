"""How long a thing that dies stays down."""

from __future__ import annotations

from prefork.backoff import Backoff


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_the_first_failure_costs_nothing_and_each_further_one_twice_as_much():
    """At once, then after 0.5, 1, 2 ... seconds up to the limit."""
    backoff = Backoff(longest=3.0, clock=Clock())
    assert [backoff.fail() for _ in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_the_next_try_may_be_made_when_the_time_is_over():
    """`is_over` is false until then."""
    clock = Clock()
    backoff = Backoff(clock=clock)
    assert backoff.is_over
    backoff.fail()
    assert backoff.is_over
    backoff.fail()
    assert not backoff.is_over
    clock.now += 0.5
    assert backoff.is_over


def test_old_failures_are_forgiven():
    """After a minute without one, a failure counts as the first."""
    clock = Clock()
    backoff = Backoff(clock=clock)
    for _ in range(5):
        backoff.fail()
    clock.now += 61
    assert backoff.fail() == 0.0


def test_any_number_of_failures_has_a_delay():
    """The delay stays at its limit."""
    backoff = Backoff(clock=Clock())
    assert [backoff.fail() for _ in range(3000)][-1] == 30.0

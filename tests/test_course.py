"""When a failure to load ends the server, and when the server goes on."""

from __future__ import annotations

from prefork.processes.balance import LOADED, Board
from prefork.processes.course import Course


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Hand:
    def __init__(self, spawned, *, loaded=True):
        self.slot = Board().take()
        self.spawned = spawned
        if loaded:
            self.slot.say(LOADED)


def test_the_server_is_ready_once():
    """With the first worker that has loaded, and not again."""
    course = Course(clock=Clock())
    assert not course.look([], 2)
    assert not course.look([Hand(1000, loaded=False)], 2)
    assert course.look([Hand(1000)], 2)
    assert not course.look([Hand(1000), Hand(1000)], 2)


def test_a_failure_before_the_server_is_ready_ends_it():
    """Whatever it was: nobody serves."""
    course = Course(clock=Clock())
    assert course.failed("it broke", by_chance=True) is None
    assert course.failed("it broke", by_chance=False) is None


def test_while_others_start_only_chance_is_forgiven():
    """A model that raises in one worker of several ends the server; a worker that somebody has killed is started again."""
    course = Course(clock=Clock())
    course.look([Hand(1000), Hand(1000, loaded=False)], 2)
    assert course.failed("it was killed", by_chance=True) == 0.0
    assert course.failed("it broke", by_chance=False) is None


def test_later_it_goes_on_and_says_what_happened():
    """The trouble is told until a worker has loaded that was forked after it, and tries are further and further apart."""
    clock = Clock()
    course = Course(clock=clock)
    old = Hand(1000)
    course.look([old], 1)
    clock.now += 100
    assert course.failed("it broke", by_chance=False) == 0.0
    assert course.may_fork
    assert course.failed("it broke again", by_chance=False) == 0.5
    assert not course.may_fork
    course.look([old], 1)
    assert course.trouble == "it broke again"
    clock.now += 0.5
    assert course.may_fork
    course.look([old, Hand(clock.now)], 1)
    assert course.trouble == ""


def test_a_worker_that_served_for_long_is_replaced_at_once_every_time():
    """Only those that die within seconds of their start are held back."""
    clock = Clock()
    course = Course(clock=clock)
    for _ in range(5):
        course.died(Hand(clock.now - 60))
        assert course.may_fork
    for _ in range(2):
        course.died(Hand(clock.now - 1))
    assert not course.may_fork

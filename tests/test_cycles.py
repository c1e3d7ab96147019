"""When cycles are collected, by a standing clock."""

from __future__ import annotations

from clocks import Clock
from prefork.remote.cycles import Cycles


class Collector:
    """Notes when it was called, and takes its time."""

    def __init__(self, clock, seconds=0.0):
        self.clock = clock
        self.seconds = seconds
        self.times = []

    def __call__(self):
        self.times.append(self.clock.now)
        self.clock.now += self.seconds


def looks(clock, cycles, count):
    for _ in range(count):
        cycles.look()
        clock.now += 1


def test_an_answer_that_stays_open_is_looked_after_less_and_less_often():
    """From the second look on, then 1, 2, 4 ... seconds later, at most every 30."""
    clock = Clock()
    collector = Collector(clock)
    begin = clock.now
    looks(clock, Cycles({id(clock): clock}, clock, collector), 100)
    assert [each - begin for each in collector.times] == [1, 2, 4, 8, 16, 32, 62, 92]


def test_answers_that_come_and_go_cost_nothing():
    """Nothing is collected where no answer is there for two looks."""
    clock = Clock()
    collector, busy = Collector(clock), {}
    cycles = Cycles(busy, clock, collector)
    for _ in range(10):
        busy.clear()
        other = object()
        busy[id(other)] = other
        looks(clock, cycles, 1)
    assert collector.times == []


def test_a_slow_collection_is_a_hundredth_of_the_time():
    """The next one waits for a hundred times what it took."""
    clock = Clock()
    collector = Collector(clock, seconds=0.5)
    looks(clock, Cycles({id(clock): clock}, clock, collector), 40)
    assert len(collector.times) == 1

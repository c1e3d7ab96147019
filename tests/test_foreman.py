"""The arbiter's decisions over time, from written histories: a fake clock, workers that are only records, and no process."""

from __future__ import annotations

import signal
from itertools import count, pairwise

from prefork.processes.balance import LOADED, SPENT, STUCK, Board
from prefork.processes.due import HUP, Term, demand, give_up_reload
from prefork.processes.foreman import Foreman
from prefork.settings import Settings

MB = 1 << 20


class Hand:
    """A worker's record. It is called by a letter, in the order in which workers are forked."""

    def __init__(self, yard, age):
        self.name = chr(ord("A") + age - 1)
        self.age = age
        self.slot = yard.board.take()
        self.slot.pid = age
        self.spawned = yard.now
        self.term = Term()
        self.due = self.leaving = ""
        self.deadline = self.overdue = 0.0


class Yard:
    """A server without processes: what the foreman orders is done at once, and written down.

    A worker that was told to go is gone when `gone` says so. loads: seconds that a model takes.
    """

    def __init__(self, wanted=2, loads=3.0, **settings):
        self.now = 1000.0
        self.board = Board()
        self.wanted = wanted
        self.loads = loads
        self.workers = {}
        self.memory = {}
        self.history = []
        self._ages = count(1)
        self.foreman = Foreman(Settings(**settings), lambda: self.now, lambda pid: self.memory.get(pid, 0))

    def run(self, seconds=0.0):
        """Let so much time pass, with a round every second, as the arbiter has it, and one at each load."""
        end = self.now + seconds
        while True:
            self._load()
            self._round()
            if self.now >= end:
                return self
            self.now = min(end, self.now + 0.5)

    def started(self):
        """After the start, with nothing written down."""
        self.run(self.loads + 1)
        self.history.clear()
        return self

    def __getitem__(self, name):
        return self.workers[name]

    def gone(self, *names):
        for name in names:
            self._bury(self.workers[name])
        return self

    def fail(self, name, *, by_chance=False):
        """The worker could not load; the delay until the next try, None where the server ends."""
        self._bury(self.workers[name])
        delay = self.foreman.course.failed(f"{name} failed", by_chance=by_chance)
        give_up_reload(self.workers.values())
        return delay

    def serving(self):
        """Who serves and was not told to go."""
        return {name for name, each in self.workers.items() if each.slot.has(LOADED) and not each.leaving}

    def told(self):
        """What was written down since, as words."""
        history, self.history = self.history, []
        return history

    def _load(self):
        for each in self.workers.values():
            if self.loads is not None and self.now - each.spawned >= self.loads and not each.slot.has(LOADED):
                each.slot.loaded(0)

    def _round(self):
        orders = self.foreman.orders(self.workers.values(), self.wanted)
        self.history += ["ready"] if orders.is_ready else []
        self.history += [f"{each.name} leaves: {each.leaving}" for each in orders.leave]
        for each, how in orders.signals:
            self.history.append(f"{each.name} gets {how.name}")
            if how is signal.SIGKILL:
                self._bury(each)
        for _ in range(orders.fork):
            new = Hand(self, next(self._ages))
            self.workers[new.name] = new
            self.history.append(f"{new.name} is forked")

    def _bury(self, worker):
        worker.slot.free()
        del self.workers[worker.name]


def test_a_start():
    """All are forked at once; the server is ready with the first that has loaded."""
    yard = Yard(wanted=2)
    assert yard.run(2.5).told() == ["A is forked", "B is forked"]
    assert yard.run(1).told() == ["ready"]


def test_two_that_are_spent_at_once_leave_one_after_the_other():
    """A replacement first, each time, and never fewer than two that serve."""
    yard = Yard().started()
    for each in "AB":
        yard[each].slot.say(SPENT)
    assert yard.run(2).told() == ["C is forked"]
    assert yard.serving() == {"A", "B"}
    assert yard.run(1).told() == ["A leaves: max_requests"]
    assert yard.run(20).told() == []  # it has requests to finish: the other one waits
    assert yard.gone("A").run().told() == ["D is forked"]
    assert yard.run(3).told() == ["B leaves: max_requests"]
    assert yard.gone("B").run(60).told() == []
    assert yard.serving() == {"C", "D"}


def test_two_at_once_where_that_is_allowed():
    """`recycle_at_once: 2` loads two replacements and lets two go."""
    yard = Yard(wanted=3, recycle_at_once=2).started()
    demand(yard.workers.values(), HUP)
    assert yard.run(2).told() == ["D is forked", "E is forked"]
    assert yard.run(1).told() == ["A leaves: HUP", "B leaves: HUP"]
    assert yard.gone("A").run(3).told() == ["F is forked", "C leaves: HUP"]


def test_growth_replaces_a_worker():
    """What a worker had when it was ready does not count, what it has gained does; its replacement begins anew."""
    yard = Yard(max_worker_memory=100 * MB)
    yard.memory = {1: 900 * MB, 2: 30 * MB, 3: 950 * MB}
    yard.started()
    yard.memory |= {1: 999 * MB, 2: 130 * MB}
    assert yard.run(5).told() == []
    yard.memory[1] = 1001 * MB
    assert yard.run(1).told() == ["C is forked"]
    assert yard["A"].term.why == ", it has grown by 101 MB"
    assert yard.run(3).told() == ["A leaves: max_worker_memory"]
    assert yard.gone("A").run(60).told() == []


def test_age_replaces_workers_apart_from_each_other():
    """Four that are ready at the same moment are due within the last tenth of `max_worker_age`, and none close to another."""
    yard = Yard(wanted=4, max_worker_age=1000).started()
    times = sorted(each.term.expires for each in yard.workers.values())
    ready = 1000 + 3
    assert ready + 900 <= times[0]
    assert times[-1] <= ready + 1000
    assert min(later - earlier for earlier, later in pairwise(times)) >= 100 / 6
    assert yard.run(890).told() == []
    first = yard.run(20).told()
    assert first[0] == "E is forked"
    assert first[1].endswith("leaves: max_worker_age")


def test_ages_stay_apart_over_generations():
    """After many replacements no two workers are due within the time that one takes to load."""
    yard = Yard(wanted=4, max_worker_age=1000).started()
    for _ in range(40):
        yard.run(50)
        yard.gone(*[each.name for each in list(yard.workers.values()) if each.leaving])
        times = sorted(each.term.expires for each in yard.workers.values() if each.slot.has(LOADED))
        assert all(later - earlier > 3 for earlier, later in pairwise(times))
    assert len(yard.workers) in {4, 5}
    assert min(each.age for each in yard.workers.values()) > 4


def test_an_operators_request_is_for_those_that_are_there():
    """Each one that is there is replaced, once; those that come later are not."""
    yard = Yard().started()
    yard["B"].slot.ask()
    assert yard.run(3).told() == ["C is forked", "A leaves: operator"]
    assert yard.gone("A").run(3).told() == ["D is forked", "B leaves: operator"]
    assert yard.gone("B").run(60).told() == []
    for name in "CD":
        yard[name].slot.ask()
    yard.run(3)  # two at once are as good as one
    assert yard.told() == ["E is forked", "C leaves: operator"]
    assert yard.gone("C").run(3).told() == ["F is forked", "D leaves: operator"]
    assert yard.gone("D").run(60).told() == []


def test_a_replacement_that_cannot_load_leaves_everything_as_it_was():
    """The old ones serve on; the next tries come at once, then after 0.5, 1, 2 seconds; the first success ends it."""
    yard = Yard(loads=1.0).started()
    yard["A"].slot.say(SPENT)
    assert yard.run().told() == ["C is forked"]
    waits = []
    for name in "CDEF":
        waits.append(yard.fail(name))
        assert yard.foreman.course.trouble == f"{name} failed"
        assert yard.serving() == {"A", "B"}
        yard.run(waits[-1] + 0.25)
    assert waits == [0.0, 0.5, 1.0, 2.0]
    assert yard.told() == ["D is forked", "E is forked", "F is forked", "G is forked"]
    assert yard.run(1).told() == ["A leaves: max_requests"]
    assert yard.foreman.course.trouble == ""


def test_a_reload_that_cannot_load_is_given_up():
    """Nobody goes for new code that does not load, and nothing is tried again; what is spent is replaced all the same."""
    yard = Yard(loads=1.0).started()
    yard["B"].slot.say(SPENT)
    yard.run()
    demand(yard.workers.values(), HUP)
    assert yard.fail("C") == 0.0
    assert yard.run(1).told() == ["C is forked", "D is forked", "B leaves: max_requests"]
    assert yard.gone("B").run(60).told() == []
    assert yard.serving() == {"A", "D"}


def test_changed_code_comes_after_another_reason():
    """A worker that is due already and sees new code goes for the code; broken code leaves it the first reason."""
    yard = Yard(loads=1.0, reload=True).started()
    yard["A"].slot.say(STUCK)
    yard.run()
    yard["A"].slot.changed()
    yard.run()
    assert yard["A"].due == "its code has changed"
    yard.fail("C")
    yard.run()
    assert yard["A"].due == "a model thread is stuck"


def test_one_that_loads_for_too_long_is_ended():
    """First it says where it is, then it is killed; the old one has served all the time."""
    yard = Yard(loads=1.0, load_timeout=10).started()
    yard["A"].slot.say(SPENT)
    yard.loads = None  # from now on for ever
    assert yard.run(10).told() == ["C is forked"]
    assert yard.run(0.5).told() == ["C gets SIGABRT"]
    assert yard.run(0.5).told() == []
    assert yard.run(0.5).told()[0] == "C gets SIGKILL"
    assert yard.serving() == {"A", "B"}


def test_a_load_of_any_length_where_there_is_no_limit():
    """`load_timeout: 0`."""
    yard = Yard(loads=5000.0, load_timeout=0)
    assert yard.run(5000).told() == ["A is forked", "B is forked", "ready"]


def test_one_that_does_not_leave_is_killed():
    """A worker that was told to go has `graceful_timeout` and a second."""
    yard = Yard(loads=1.0, graceful_timeout=10).started()
    yard["A"].slot.say(SPENT)
    assert yard.run(1).told() == ["C is forked", "A leaves: max_requests"]
    assert yard.run(11).told() == []
    assert yard.run(0.5).told() == ["A gets SIGKILL"]


def test_one_worker_less():
    """TTOU lets the oldest go, at once and without a replacement."""
    yard = Yard(wanted=3).started()
    yard.wanted = 2
    assert yard.run(10).told() == ["A leaves: there is one too many"]


def test_one_that_dies_is_replaced_at_once_and_another_one_meanwhile():
    """A death while another worker is replaced costs one fork more, and nobody else has to go."""
    yard = Yard().started()
    yard["A"].slot.say(SPENT)
    assert yard.run().told() == ["C is forked"]
    yard.foreman.course.died(yard["B"])
    yard.gone("B")
    assert yard.run().told() == ["D is forked"]
    assert yard.run(3).told() == ["A leaves: max_requests"]
    assert yard.serving() == {"C", "D"}

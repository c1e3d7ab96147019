"""When a folder that is being copied is looked at."""

from __future__ import annotations

from prefork.repository.settled import Settled


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_was_accepted_has_not_changed():
    """The stamp that is known is no change, however much later."""
    clock = Clock()
    settled = Settled(1.0, clock)
    settled.accept("iris", "a")
    clock.now = 100
    assert not settled.changed("iris", "a")
    assert settled.wait() is None


def test_a_change_counts_once_it_has_been_quiet():
    """A new stamp is a change after `quiet` seconds without another, and one change only."""
    clock = Clock()
    settled = Settled(1.0, clock)
    settled.accept("iris", "a")
    assert not settled.changed("iris", "b")
    assert settled.wait() == 1.0
    clock.now = 0.75
    assert not settled.changed("iris", "c")
    clock.now = 1.5
    assert not settled.changed("iris", "c")
    assert settled.wait() == 0.25
    clock.now = 1.75
    assert settled.changed("iris", "c")
    assert not settled.changed("iris", "c")
    assert settled.wait() is None


def test_a_change_that_is_taken_back_is_none():
    """A stamp that returns to the known one is no change, and a later one starts anew."""
    clock = Clock()
    settled = Settled(1.0, clock)
    settled.accept("iris", "a")
    assert not settled.changed("iris", "b")
    assert not settled.changed("iris", "a")
    clock.now = 5
    assert not settled.changed("iris", "b")


def test_what_appears_and_what_goes_settle_too():
    """A new name, and one whose stamp is empty because it is gone, are changes like any other."""
    clock = Clock()
    settled = Settled(1.0, clock)
    settled.accept("old", "a")
    assert not settled.changed("new", "n")
    assert not settled.changed("old", "")
    assert settled.names() == {"old", "new"}
    clock.now = 1
    assert settled.changed("new", "n")
    assert settled.changed("old", "")
    assert settled.names() == {"new"}
    assert not settled.changed("old", "")


def test_names_settle_apart():
    """One folder that goes on changing holds up no other, and the wait is for the first of them."""
    clock = Clock()
    settled = Settled(1.0, clock)
    settled.changed("busy", "1")
    clock.now = 0.5
    settled.changed("calm", "x")
    settled.changed("busy", "2")
    clock.now = 1.25
    settled.changed("busy", "3")
    assert settled.wait() == 0.25
    clock.now = 1.5
    assert settled.changed("calm", "x")
    assert not settled.changed("busy", "4")

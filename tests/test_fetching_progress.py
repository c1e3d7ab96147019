"""Progress, on a terminal and in a log, on a clock that the test moves."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading

import pytest

from clocks import Clock
from prefork.fetching.progress import Progress, amount

MIB = 1 << 20


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def terminal():
    """A pseudo-terminal: the end to write to, and what was written, read up to an end."""
    near, far = os.openpty()

    def written(end):
        text = ""
        while not text.endswith(end):
            text += os.read(near, 1 << 16).decode()
        return text

    with os.fdopen(far, "w") as stream:
        yield stream, written
    os.close(near)


def test_lines_of_the_log(clock, caplog):
    """Without a terminal there is a line every five seconds: what, bytes of all, share, rate, seconds; and one at the end."""
    caplog.set_level(logging.INFO, "prefork")
    with Progress("iris", 100 * MIB, stream=io.StringIO(), clock=clock) as progress:
        for _ in range(12):
            clock.now += 1
            progress.advance(4 * MIB)
    assert caplog.messages == [
        "iris: 20.0 MiB of 100.0 MiB (20%), 4.0 MiB/s, 5 s so far",
        "iris: 40.0 MiB of 100.0 MiB (40%), 4.0 MiB/s, 10 s so far",
        "iris: 48.0 MiB in 12 s",
    ]


def test_what_was_there_before_is_not_speed(clock, caplog):
    """Bytes that were there before count as done and not into the rate."""
    caplog.set_level(logging.INFO, "prefork")
    progress = Progress("iris", stream=io.StringIO(), clock=clock)
    progress.expect(100 * MIB, 90 * MIB)
    clock.now += 5
    progress.at(95 * MIB)
    assert caplog.messages == ["iris: 95.0 MiB of 100.0 MiB (95%), 1.0 MiB/s, 5 s so far"]


def test_an_unknown_total(clock, caplog):
    """Where nobody knows how many bytes there are, those that came are shown, or the time alone."""
    caplog.set_level(logging.INFO, "prefork")
    progress = Progress("iris", stream=io.StringIO(), clock=clock)
    clock.now += 5
    progress.tick()
    clock.now += 5
    progress.advance(1000)
    assert caplog.messages == ["iris: 5 s so far", "iris: 1000 B, 100 B/s, 10 s so far"]


def test_a_short_work_is_silent(clock, caplog, terminal):
    """What is over before the first line was due says nothing, neither in a log nor on a terminal."""
    caplog.set_level(logging.INFO, "prefork")
    stream, written = terminal
    for each in (stream, io.StringIO()):
        with Progress("iris", 10, stream=each, clock=clock) as progress:
            progress.advance(10)
    stream.write("end")
    stream.flush()
    assert caplog.messages == []
    assert written("end") == "end"


def test_a_bar_on_a_terminal(clock, caplog, terminal):
    """A terminal gets a bar that is drawn over itself, with a line of its own at the end, and the log nothing."""
    caplog.set_level(logging.INFO, "prefork")
    stream, written = terminal
    with Progress("iris", 4 * MIB, stream=stream, clock=clock) as progress:
        clock.now += 1
        progress.advance(1 * MIB)
        clock.now += 0.01
        progress.advance(1)
        clock.now += 1
        progress.at(4 * MIB)
    drawn = written("\n").split("\r\x1b[K")
    assert drawn[1] == f"iris  [{'#' * 7}{'.' * 21}]   25%  1.0 MiB of 4.0 MiB  1.0 MiB/s  1 s"
    assert drawn[2] == f"iris  [{'#' * 28}]  100%  4.0 MiB of 4.0 MiB  2.0 MiB/s  2 s"
    assert drawn[3].rstrip("\r\n") == drawn[2]
    assert len(drawn) == 4
    assert caplog.messages == []


def test_a_failure_takes_the_bar_away(clock, terminal):
    """Where the work fails, the bar is wiped so that the error stands on a line of its own."""
    stream, written = terminal
    with contextlib.suppress(ValueError), Progress("iris", 4, stream=stream, clock=clock) as progress:
        clock.now += 1
        progress.advance(1)
        raise ValueError
    assert written("1 s\r\x1b[K").count("iris") == 1


def test_ticking_shows_what_does_not_report(clock, terminal):
    """A thread shows the time while something works that does not report, and is gone at the end."""
    stream, written = terminal
    with Progress("iris", stream=stream, clock=clock).ticking():
        clock.now += 3
        assert written("3 s") == "\r\x1b[Kiris  3 s"
    assert [each.name for each in threading.enumerate() if each.name == "progress"] == []


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")]
)
def test_amounts(count, text):
    """Bytes are written with the unit that fits."""
    assert amount(count) == text

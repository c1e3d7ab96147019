"""What is shown while a model loads, on a clock that the test moves."""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import re
import struct
import termios
import threading
from pathlib import Path

import pytest

from clocks import Clock
from prefork.model import Model
from prefork.model import loading as subject
from prefork.model.loading import Desk, Loading, Reading, loading
from running import launched, wait_until

MIB = 1 << 20
MEMORY = r"\d+\.\d [MG]iB of memory"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "iris.bin"
    path.write_bytes(bytes(4 * MIB))
    return path


def test_lines_of_the_log(clock, caplog, file):
    """After two seconds and then every five: what, bytes of the file, memory, time; at the end that it is loaded."""
    caplog.set_level(logging.INFO, "prefork")
    with Loading("iris", file, stream=io.StringIO(), clock=clock) as shown, file.open("rb", buffering=0) as opened:
        for _ in range(8):
            opened.read(MIB // 2)
            clock.now += 1
            shown.tick()
    first, second, last = caplog.messages
    assert re.fullmatch(rf"loading iris: 1\.0 MiB of 4\.0 MiB \(25%\), {MEMORY}, 2 s so far", first)
    assert re.fullmatch(rf"loading iris: 3\.5 MiB of 4\.0 MiB \(88%\), {MEMORY}, 7 s so far", second)
    assert re.fullmatch(rf"iris is loaded, in 8 s, {MEMORY}", last)


def test_a_load_of_ones_own(clock, caplog):
    """Where nobody knows what is read, a line has what was read at all, memory and time."""
    caplog.set_level(logging.INFO, "prefork")
    with Loading("iris", stream=io.StringIO(), clock=clock) as shown:
        clock.now += 2
        shown.tick()
    assert re.fullmatch(rf"loading iris: \d[\d.]* [KM]?i?B read, {MEMORY}, 2 s so far", caplog.messages[0])


def test_a_quick_one_is_silent(clock, caplog, file):
    """What loads within two seconds has no line."""
    caplog.set_level(logging.INFO, "prefork")
    with Loading("iris", file, stream=io.StringIO(), clock=clock) as shown:
        clock.now += 1.9
        shown.tick()
    assert caplog.messages == []


def test_a_failure_is_not_loaded(clock, caplog, file):
    """What fails is never said to be loaded."""
    caplog.set_level(logging.INFO, "prefork")
    with contextlib.suppress(ValueError), Loading("iris", file, stream=io.StringIO(), clock=clock) as shown:
        clock.now += 3
        shown.tick()
        raise ValueError
    assert len(caplog.messages) == 1


def test_a_folder_is_read_file_by_file(tmp_path):
    """Of a folder each file counts as far as it was read, also when it is closed again; other files do not."""
    for name in ("a", "b"):
        (tmp_path / "model" / name).mkdir(parents=True)
        (tmp_path / "model" / name / "data").write_bytes(bytes(1000))
    (tmp_path / "other").write_bytes(bytes(1000))
    reading = Reading(tmp_path / "model")
    assert reading.total == 2000
    with (tmp_path / "model" / "a" / "data").open("rb", buffering=0) as opened:
        opened.read()
        assert reading.so_far() == 1000
    with (tmp_path / "other").open("rb", buffering=0) as other:
        other.read()
        assert reading.so_far() == 1000
    with (tmp_path / "model" / "b" / "data").open("rb", buffering=0) as opened:
        opened.read(500)
        assert reading.so_far() == 1500


def test_what_no_open_file_tells_is_counted(file):
    """A file that is closed when somebody looks was read as far as the process has read; never further than it goes."""
    reading = Reading(file)
    file.read_bytes()[:MIB]
    assert reading.so_far() in {0, 4 * MIB} or 4 * MIB - MIB < reading.so_far() <= 4 * MIB
    small = file.with_name("small")
    small.write_bytes(b"x")
    reading = Reading(small)
    file.read_bytes()
    assert reading.so_far() == 0


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


def test_a_bar_on_a_terminal(clock, caplog, file, terminal):
    """A terminal has a bar, which is gone when the log says that the model is loaded."""
    caplog.set_level(logging.INFO, "prefork")
    stream, written = terminal
    with Loading("iris", file, stream=stream, clock=clock) as shown, file.open("rb", buffering=0) as opened:
        opened.read(MIB)
        clock.now += 2
        shown.tick()
    drawn = written("\x1b[K").split("\r\x1b[K")
    assert re.fullmatch(rf"loading iris  \[#{{7}}\.{{21}}\]   25%  1\.0 MiB of 4\.0 MiB  {MEMORY}  2 s", drawn[1])
    assert len(drawn) == 3 or drawn[2:] == [""]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("iris is loaded")


def test_one_draws_on_a_terminal(terminal):
    """Of several that load at the same time the first draws; when it is done another one may. A log is everybody's."""
    stream, _ = terminal
    first, second = Desk(stream), Desk(stream)
    assert first.is_mine()
    assert first.is_mine()
    assert not second.is_mine()
    first.leave()
    assert second.is_mine()
    second.leave()
    assert Desk(io.StringIO()).is_mine()


def test_it_fits_the_terminal(clock, file, terminal):
    """A narrow terminal has a shorter bar, or none: a line that goes over the edge could not be drawn over."""
    stream, written = terminal
    shown = Loading("iris", file, stream=stream, clock=clock)
    for columns in (80, 30):
        fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        clock.now += 2
        shown.tick()
    stream.write("end")
    stream.flush()
    _, wide, narrow = written("end").removesuffix("end").split("\r\x1b[K")
    assert len(wide) <= 79
    assert "[" in wide
    assert len(narrow) == 29
    assert "[" not in narrow


class Slow:
    def __init__(self):
        self.may_go = threading.Event()

    def load(self):
        assert self.may_go.wait(60)

    def predict(self, X, names):
        return X


class Quick:
    def predict(self, X, names):
        return X


def test_a_users_load_is_shown(monkeypatch, caplog):
    """While a class's `load()` runs there are lines, and the thread that writes them is gone with it."""
    caplog.set_level(logging.INFO, "prefork")
    monkeypatch.setattr(subject, "_PATIENCE", 0.0)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    slow = Slow()

    class Opening(logging.Handler):
        def emit(self, record):
            slow.may_go.set()

    handler = Opening()
    logging.getLogger("prefork").addHandler(handler)
    try:
        Model(slow, "m").load()
    finally:
        logging.getLogger("prefork").removeHandler(handler)
    assert caplog.messages[0].startswith("loading m: ")
    assert caplog.messages[-1].startswith("m is loaded")
    assert [each.name for each in threading.enumerate() if each.name == "progress"] == []


def test_nothing_runs_where_there_is_nothing_to_load():
    """A class without `load()` costs no thread."""
    before = threading.active_count()
    with loading("m", Quick()):
        assert threading.active_count() == before


SLOW = """
import pathlib, time

class Model:
    def load(self):
        log, end = pathlib.Path("server.log"), time.monotonic() + 60
        while "loading Model: " not in log.read_text() and time.monotonic() < end:
            time.sleep(0.05)

    def predict(self, X, names):
        return X
"""


@pytest.mark.parametrize("host", ["worker", "process"])
def test_a_server_shows_it(tmp_path: Path, host: str):
    """In both hosts the log tells that a model loads that takes long, and then that it is loaded."""
    (tmp_path / "Model.py").write_text(SLOW)
    with launched(tmp_path, "Model", "--workers", "1", "--host", host) as server:
        wait_until(lambda: "Model is loaded, in " in server.log, "the line that it is loaded")
        assert re.search(rf"loading Model: .* read, {MEMORY}, \d+ s so far", server.log)

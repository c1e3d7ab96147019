"""The table of life-cycle histories in docs/operations.md: each signal at each moment, and what the client sees.

Each cell is a server of its own. Worker class and preload go round from cell to cell, so that every pair of signal, moment,
worker class and preload is tried: what the table says does not depend on them.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import pytest

from gated import SLEEPING, STREAM, Gated, body, children, gated, of_class
from running import serving, wait_until
from test_ready import LOADING

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
CLASSES = ("asgi", "sync", "gthread", "gevent")
CLOSED, CUT, REFUSED, WHOLE = "closed", "cut off", "refused", "whole"


class History:
    """One server and one signal. before: the workers that there were when it began."""

    def __init__(self, server: Gated, name: str) -> None:
        self.server = server
        self.name = name
        self.pid = server.running.process.pid
        self.before = list(children(self.pid))

    @property
    def log(self) -> str:
        return self.server.running.log

    @property
    def cuts(self) -> bool:
        """Whether the signal ends the server and waits for nobody."""
        return self.name in {"INT", "QUIT"}

    @property
    def ends(self) -> bool:
        """Whether the signal ends the server."""
        return self.name in {"TERM", "INT", "QUIT"}

    def send(self, name: str = "") -> None:
        self.server.running.process.send_signal(getattr(signal, f"SIG{name or self.name}"))

    def strike(self, victim: int = 0) -> None:
        """Send the signal and wait until it has done what it does first. victim: who is killed, where it is KILL."""
        if self.name == "KILL":
            victim = victim or self.before[0]
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: victim not in children(self.pid), "the end of the worker")
        elif self.name == "TTOU":  # the last worker stays, so that there has to be another one first
            self._raise()
            self.send()
            wait_until(lambda: "leaves: there is one too many" in self.log, "one worker less")
        elif self.name == "TTIN":
            self._raise()
        else:
            self.send()
            wait_until({"HUP": self._is_replaced, "USR1": self._is_quiet}.get(self.name, self._stops), self.name)

    def nudge(self) -> None:
        """Send the signal and wait until the arbiter has taken it: where it is not known to do anything."""
        self.send()
        wait_until(self._is_quiet, "the arbiter to have nothing to do")

    def afterwards(self) -> str:
        """What a new connection gets in the end."""
        if self.ends:
            status = self.server.running.process.wait(30)
            assert status == 0, self.log
        return answer_of(self.server)

    def _raise(self) -> None:
        self.send("TTIN")
        wait_until(lambda: self.log.count("loaded in") == 2, "another worker")

    def _is_replaced(self) -> bool:
        return "leaves: HUP" in self.log

    def _stops(self) -> bool:
        return "stopping" in self.log

    def _is_quiet(self) -> bool:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return "State:\tS" in status and all(f"{field}:\t{0:016x}" in status for field in ("SigPnd", "ShdPnd"))


def answer_of(server: Gated) -> str:
    """The status that a new connection gets, or that it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", server.running.port, timeout=60)
    try:
        connection.request("GET", "/live", headers={"Connection": "close"})
        return str(connection.getresponse().status)
    except ConnectionRefusedError:
        return REFUSED
    finally:
        connection.close()


def asked(history: History, future) -> str:
    """What became of a request in flight. Where it is cut off, `sync` manages to say 500 before it closes."""
    if future.exception(60) is not None:
        return CLOSED
    status = future.result().status_code
    return CLOSED if status == 500 and " sync workers" in history.log else str(status)


def starting(server: Gated, name: str) -> str:
    """While the only worker loads its model: nobody is let in."""
    history = History(server, name)
    wait_until(lambda: list(server.place.glob("loading.*")), "a worker that loads")
    seen = answer_of(server)
    if name == "KILL":
        os.kill(*children(history.pid), signal.SIGKILL)
        assert server.running.process.wait(30) == 3
        return f"{seen}, then {answer_of(server)}"
    history.nudge() if not history.ends else history.send()
    if not history.ends:
        server.release(0)
        wait_until(server.running.accepts, "the port to open")
    return f"{seen}, then {history.afterwards()}"


def idle(server: Gated, name: str) -> str:
    """On a connection without a request, which has been answered before where the worker class keeps connections."""
    history = History(server, name)
    if history.ends or name == "KILL":
        with socket.create_connection(("127.0.0.1", server.running.port), timeout=60) as client:
            if " sync workers" not in server.running.log:
                client.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.recv(65536).startswith(b"HTTP/1.1 200")
            history.strike()
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
        return f"{CLOSED}, then {history.afterwards()}"
    with Talk(server) as talk:
        talk.ask()
        history.strike()
        leaving = set(history.before) if name in {"HUP", "TTOU"} else set()
        wait_until(lambda: talk.ask() and not leaving & children(history.pid), "the old worker to leave")
        assert len(talk.seen) == 1
        return f"{talk.seen.pop()}, then {history.afterwards()}"


class Talk:
    """A client that keeps its connection, asks again and again, and opens another one when it was told that it is closed."""

    def __init__(self, server: Gated) -> None:
        self.seen: set[int] = set()
        self._connection = http.client.HTTPConnection("127.0.0.1", server.running.port, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self) -> bool:
        self._connection.request("POST", "/predict", json.dumps(body(7)), {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        answer.read()
        self.seen.add(answer.status)
        return True


def in_flight(server: Gated, name: str) -> str:
    """While the model computes."""
    future = server.busy(1)
    history = History(server, name)
    history.strike()
    if not history.cuts:
        server.release(1)
    return f"{asked(history, future)}, then {history.afterwards()}"


def streaming(server: Gated, name: str) -> str:
    """While an answer streams."""
    server.hold(1)
    with server.raw(1, "/v2/models/Model/generate_stream", "Connection: close\r\n") as client:
        got = client.recv(65536)
        server.wait("entered", 1)
        history = History(server, name)
        history.strike()
        if not history.cuts:
            server.release(1)
        with suppress(ConnectionResetError):
            while more := client.recv(65536):
                got += more
    whole = got.count(b"data:") == 3
    return f"{WHOLE if whole else CUT}, then {history.afterwards()}"


def replacing(server: Gated, name: str) -> str:
    """On a request in flight, while HUP has a replacement of its worker loaded."""
    future = server.busy(1)
    history = History(server, name)
    [old] = history.before
    server.hold(0)
    history.send("HUP")
    wait_until(lambda: len(list(server.place.glob("loading.*"))) == 2, "a replacement that loads")
    if name == "KILL":
        history.strike(*(children(history.pid) - {old}))
    elif history.ends:
        history.strike()
    else:
        history.nudge()
    if not history.cuts:
        server.release(1)
    seen = asked(history, future)
    server.release(0)
    return f"{seen}, then {history.afterwards()}"


def draining(server: Gated, name: str) -> str:
    """On a request in flight, while the server stops for TERM and its port is closed."""
    future = server.busy(1)
    history = History(server, name)
    history.send("TERM")
    wait_until(lambda: not server.running.accepts(), "a closed port")
    if name == "KILL":
        history.strike()
    elif history.ends:
        history.send()
    else:
        history.nudge()
        server.release(1)
    seen = asked(history, future)
    assert server.running.process.wait(30) == 0
    return f"{seen}, then {answer_of(server)}"


SIGNALS = ("TERM", "INT", "QUIT", "HUP", "USR1", "TTIN", "TTOU", "KILL")
MOMENTS: dict[str, tuple[Callable[[Gated, str], str], str]] = {
    "the model loads": (starting, LOADING),
    "idle connection": (idle, SLEEPING),
    "request in flight": (in_flight, SLEEPING),
    "stream in flight": (streaming, STREAM),
    "a replacement loads": (replacing, LOADING),
    "the server drains": (draining, SLEEPING),
}


def table() -> dict[tuple[str, str], str]:
    """By signal and moment, what the page says."""
    lines = PAGE.read_text().partition("## Life-cycle histories\n")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    head, _, *rest = rows[: 2 + len(SIGNALS)]
    return {(row[0].split()[0], moment): cell for row in rest for moment, cell in zip(head[1:], row[1:], strict=True)}


def chosen(name: str, moment: str) -> tuple[str, bool]:
    """The worker class and whether the class is preloaded: a design in which every pair of the four factors is there."""
    row, column = SIGNALS.index(name), list(MOMENTS).index(moment)
    return CLASSES[(row + column) % 4], (row // 2 + column) % 2 == 1


CELLS = [(name, moment, *chosen(name, moment)) for name in SIGNALS for moment in MOMENTS]


def test_every_cell_is_tried():
    """No cell of the table is without its history, and no history without its cell."""
    assert list(table()) == [(name, moment) for name, moment, *_ in CELLS]


def test_every_pair_is_tried():
    """Of signal, moment, worker class and preload, each value meets each value of the others."""
    for one, other in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        values = len({cell[one] for cell in CELLS}) * len({cell[other] for cell in CELLS})
        assert len({(cell[one], cell[other]) for cell in CELLS}) == values


@pytest.mark.parametrize(
    ("name", "moment", "worker_class", "preload"),
    CELLS,
    ids=[f"{name}-{moment}-{kind}{'-preload' if preload else ''}" for name, moment, kind, preload in CELLS],
)
def test_a_client_sees_what_the_table_says(tmp_path, name, moment, worker_class, preload):
    """What the cell promises is what a client of a real server sees."""
    happen, source = MOMENTS[moment]
    flags = (*of_class(worker_class), "--graceful-timeout", "600", *(["--preload"] if preload else []))
    flags = (*flags, "--trial-timeout", "0")
    with ExitStack() as stack:
        if moment == "the model loads":
            (tmp_path / "hold.0").touch()
            env = {"PLACE": str(tmp_path)}
            running = stack.enter_context(serving(tmp_path, source, "--workers", "1", *flags, env=env, ready=False))
            server = Gated(running, tmp_path)
        else:
            server = stack.enter_context(gated(tmp_path, source, *flags))
        assert happen(server, name) == table()[name, moment]

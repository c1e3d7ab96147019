"""The table in docs/operations.md: each of its rows is made to happen."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gated import SLEEPING, STREAM, STUBBORN, body, gated, request
from running import wait_until

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
TENSOR = {"name": "x", "shape": [1, 1], "datatype": "FP64", "data": [1]}


def rows() -> dict[str, str]:
    """The cases of the first table and what the client sees."""
    lines = PAGE.read_text().partition("| case |")[2].splitlines()[2:]
    cells = [line.strip("| ").split(" | ") for line in lines[: lines.index("")]]
    return {case: seen for case, seen, _ in cells}


def probe(server, path="/ready"):
    with server.running.client() as client:
        return client.get(path).status_code


def loaded(place):
    with gated(place, STUBBORN) as server:
        return f"{probe(server)} from `/ready`"


def full(place):
    with gated(place, STUBBORN, "--max-queue", "1") as server:
        server.busy(1)
        asked = [server.ask(2), server.ask(3)]
        wait_until(lambda: any(each.done() for each in asked), "a refusal")
        answer = next(each for each in asked if each.done()).result()
        return f"{answer.status_code}, `Retry-After: {answer.headers['retry-after']}`, at once"


def late_in_queue(place):
    with gated(place, STUBBORN) as server:
        server.busy(1)
        answer = server.ask(2, **{"x-request-timeout": "0.2"}).result(30)
        assert not server.has("entered", 2)
        return f"{answer.status_code}, `Retry-After: {answer.headers['retry-after']}`, at once"


def late_computing(place):
    with gated(place, SLEEPING, "--request-timeout", "0.3") as server:
        answer = server.busy(1).result(30)
        assert not server.has("left", 1)
        server.wait("cancelled", 1)
        return f"{answer.status_code} at once"


def late_streaming(place):
    with gated(place, STREAM) as server:
        server.hold(1)
        head = "X-Request-Timeout: 0.3\r\nConnection: close\r\n"
        with server.raw(1, "/v2/models/Model/generate_stream", head) as client:
            got = b"".join(iter(lambda: client.recv(65536), b""))
        server.release(1)
        server.wait("left", 1)
        last = got.split(b"data: ")[-1].partition(b"\n")[0]
        return "a last event with the error" if "in the time" in json.loads(last)["error"] else got.decode()


def bad_header(place):
    with gated(place, STUBBORN) as server:
        return str(server.ask(1, **{"x-request-timeout": "soon"}).result(30).status_code)


def bad_parameter(place):
    with gated(place, STUBBORN) as server, server.running.client() as client:
        message = {"inputs": [TENSOR], "parameters": {"timeout": -1}}
        return str(client.post("/v2/models/Model/infer", json=message).status_code)


def gone_in_queue(place):
    with gated(place, STUBBORN) as server:
        first = server.busy(1)
        server.raw(2).close()
        after = server.ask(3)
        server.release(1)
        assert first.result(30).status_code == after.result(30).status_code == 200
        assert not server.has("entered", 2)
        return "nothing"


def gone_computing(place):
    with gated(place, SLEEPING) as server:
        server.hold(1)
        client = server.raw(1)
        server.wait("entered", 1)
        client.close()
        server.wait("cancelled", 1)
        return "nothing"


def slow(place):
    with gated(place, STUBBORN, "--read-timeout", "1") as server:
        with socket.create_connection(("127.0.0.1", server.running.port), timeout=60) as client:
            client.sendall(request(1)[:-1])
            got = b"".join(iter(lambda: client.recv(65536), b""))
        return f"{got[9:12].decode()}, then the connection is closed"


def ready_in_grace(place):
    with gated(place, STUBBORN, "--drain-grace", "600") as server:
        server.running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: probe(server) != 200, "the drain")
        seen = f"{probe(server)} from `/ready`"
        server.running.stop(signal.SIGINT)
        return seen


def asked_in_grace(place):
    with gated(place, STUBBORN, "--drain-grace", "600") as server:
        server.running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: probe(server) == 503, "the drain")
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.running.port, timeout=30)) as client:
            client.request("POST", "/predict", json.dumps(body(1)), {"Content-Type": "application/json"})
            answer = client.getresponse()
            answer.read()
        server.running.stop(signal.SIGINT)
        return f"{answer.status}, `Connection: {answer.getheader('connection')}`"


def connects_after_grace(place):
    with gated(place, STUBBORN, "--graceful-timeout", "600") as server:
        asked = server.busy(1)
        server.running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not server.running.accepts(), "a closed port")
        assert not asked.done()
        return "the connection is refused"


def in_flight(place):
    with gated(place, STUBBORN) as server:
        asked = server.busy(1)
        server.running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in server.running.log, "the drain")
        server.release(1)
        return str(asked.result(30).status_code)


def twice(place):
    with gated(place, STUBBORN, "--graceful-timeout", "600") as server:
        asked = server.busy(1)
        server.running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in server.running.log, "the drain")
        assert server.running.stop(signal.SIGTERM) == 0
        assert asked.exception(30) is not None
        return "the connection is closed"


CASES: dict[str, Callable[[Path], str]] = {
    "the model has loaded, nobody stops it": loaded,
    "`max_queue` requests wait already": full,
    "the time of a request is up while it waits": late_in_queue,
    "the time of a request is up while the model computes": late_computing,
    "the time of a request is up while its answer streams": late_streaming,
    "`X-Request-Timeout` is no number of seconds above 0": bad_header,
    "V2's `timeout` is no whole number of microseconds": bad_parameter,
    "the client hangs up while its request waits": gone_in_queue,
    "the client hangs up while the model computes": gone_computing,
    "a body does not come whole in `read_timeout`": slow,
    "TERM, then readiness is asked in `drain_grace`": ready_in_grace,
    "TERM, then a request in `drain_grace`": asked_in_grace,
    "TERM, then a new connection after `drain_grace`": connects_after_grace,
    "TERM while a request is in flight": in_flight,
    "TERM, then TERM, INT or QUIT": twice,
}


def test_every_row_is_tried():
    """No row of the table is without its test, and no test without its row."""
    assert list(rows()) == list(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_client_sees_what_the_table_says(tmp_path, case):
    """What the row promises is what a real server does."""
    assert CASES[case](tmp_path) == rows()[case]

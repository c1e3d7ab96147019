"""Deadlines: what a client gets when its time is up, and what becomes of the model's thread."""

from __future__ import annotations

import httpx
import pytest

from gated import ASYNC, SLEEPING, STREAM, STUBBORN, body, children, gated, request
from prefork.testing import Client
from running import wait_until


class Echo:
    def predict(self, X, names):
        return X


def test_an_expired_request_gets_504_while_the_model_goes_on(tmp_path):
    """The client is told at once; the model sees that nobody waits, and its thread takes the next request when it is done."""
    with gated(tmp_path, SLEEPING, "--request-timeout", "0.3") as server:
        asked = server.busy(1)
        answer = asked.result(30)
        assert answer.status_code == 504
        assert answer.json()["status"]["reason"] == "DEADLINE_EXCEEDED"
        assert not server.has("left", 1)
        server.wait("cancelled", 1)
        server.release(1)
        wait_until(lambda: server.ask(2).result(30).status_code == 200, "the next answer")


def test_an_expired_request_in_the_queue_gets_503_and_is_never_computed(tmp_path):
    """Time in the queue counts; what expires there never reaches the model."""
    with gated(tmp_path, STUBBORN) as server:
        first = server.busy(1)
        late = server.ask(2, **{"x-request-timeout": "0.2"}).result(30)
        assert late.status_code == 503
        assert late.headers["retry-after"] == "1"
        assert "was up before" in late.text
        server.release(1)
        assert first.result(30).status_code == 200
        assert server.ask(3).result(30).status_code == 200
        assert not server.has("entered", 2)


def test_v2_timeout_counts_in_the_queue_too(tmp_path):
    """V2's `timeout` parameter, in microseconds, is seen while the request still waits."""
    with gated(tmp_path, STUBBORN) as server:
        first = server.busy(1)
        with server.running.client() as client:
            tensor = {"name": "x", "shape": [1, 1], "datatype": "FP64", "data": [2]}
            message = {"inputs": [tensor], "parameters": {"timeout": 200000}}
            answer = client.post("/v2/models/Model/infer", json=message)
        assert answer.status_code == 503
        assert "was up before" in answer.json()["error"]
        server.release(1)
        assert first.result(30).status_code == 200
        assert not server.has("entered", 2)


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize(
    "case",
    [
        (60.0, "30", 10**8, True),
        (60.0, "30", 0, True),
        (0.0, "30", "100000000", True),
        (60.0, "30", 1, False),
        (60.0, "0.000001", 10**8, False),
        (0.000001, "30", 10**8, False),
    ],
)
def test_the_earliest_deadline_holds(front, threads, case):
    """Of the server's limit, the header and V2's parameter; a microsecond is over before an answer can be there."""
    server, header, parameter, in_time = case
    tensor = {"name": "x", "shape": [1, 1], "datatype": "FP64", "data": [1]}
    with Client(Echo, front=front, threads=threads, request_timeout=server) as client:
        message = {"inputs": [tensor], "parameters": {"timeout": parameter}}
        answer = client.post("/v2/models/Echo/infer", json=message, headers={"x-request-timeout": header})
        assert answer.status_code in ((200,) if in_time else (503, 504)), answer.text


def test_a_model_with_an_input_called_timeout_keeps_the_word(front):
    """There V2's `timeout` is the model's own."""

    class Own:
        def predict(self, x: float, timeout: float = 0.5) -> dict[str, float]:
            return {"y": timeout}

    tensor = {"name": "x", "shape": [1], "datatype": "FP64", "data": [1]}
    with Client(Own, front=front) as client:
        message = {"inputs": [tensor], "parameters": {"timeout": 1}}
        answer = client.post("/v2/models/Own/infer", json=message)
        assert answer.status_code == 200, answer.text
        assert answer.json()["outputs"][0]["data"] == [1.0]


@pytest.mark.parametrize("said", ["0", "-1", "soon", "inf", "nan", ""])
def test_a_header_that_is_no_time_is_refused(front, said):
    """X-Request-Timeout must be a number of seconds above 0; anything else is a 400 that names it."""
    with Client(Echo, front=front) as client:
        answer = client.post("/predict", json=body(1), headers={"x-request-timeout": said})
        assert answer.status_code == 400
        assert "X-Request-Timeout" in answer.text


@pytest.mark.parametrize("said", [-1, 1.5, True, "soon", [1]])
def test_a_v2_timeout_that_is_no_time_is_refused(front, said):
    """V2's `timeout` must be a whole number of microseconds."""
    tensor = {"name": "x", "shape": [1, 1], "datatype": "FP64", "data": [1]}
    with Client(Echo, front=front) as client:
        answer = client.post("/v2/models/Echo/infer", json={"inputs": [tensor], "parameters": {"timeout": said}})
        assert answer.status_code == 400
        assert "timeout" in answer.json()["error"]


@pytest.mark.parametrize(
    "flags",
    [
        ("--threads", "0"),
        ("--worker-class", "sync"),
        ("--worker-class", "gthread", "--threads", "2"),
        ("--worker-class", "gevent"),
    ],
)
def test_where_nobody_can_answer_meanwhile_a_late_answer_is_504(tmp_path, flags):
    """Where the model runs in the way of the answer, 504 comes when the model returns; never a 200 that is late."""
    with gated(tmp_path, SLEEPING, "--request-timeout", "0.2", *flags) as server:
        asked = server.busy(1)
        server.wait("cancelled", 1)
        server.release(1)
        assert asked.result(30).status_code == 504
        wait_until(lambda: server.ask(2).result(30).status_code == 200, "the next answer")


def test_an_async_predict_is_cancelled_at_the_deadline(tmp_path):
    """An `async def predict` gets CancelledError, its client 504."""
    with gated(tmp_path, ASYNC, "--request-timeout", "0.2") as server:
        assert server.busy(1).result(30).status_code == 504
        server.wait("cancelled", 1)
        wait_until(lambda: server.ask(2).result(30).status_code == 200, "the next answer")


@pytest.mark.parametrize(
    "flags", [("--threads", "1"), ("--threads", "0"), ("--worker-class", "gthread", "--threads", "2")]
)
def test_a_stream_ends_at_the_deadline_with_an_event_that_says_so(tmp_path, flags):
    """The status is sent already: the last event has the error, and the user's generator is closed."""
    with gated(tmp_path, STREAM, "--request-timeout", "0.3", *flags) as server:
        server.hold(1)
        with httpx.Client(base_url=server.running.url, timeout=60) as client:
            path = "/v2/models/Model/generate_stream"
            with client.stream("POST", path, json={"INPUT": [[1]]}) as answer:
                events = answer.iter_lines()
                first = next(line for line in events if line)
                server.wait("cancelled", 1)
                server.release(1)
                rest = [line for line in events if line]
        assert '"outputs"' in first or "data" in first
        assert len(rest) == 1
        assert "in the time for this request" in rest[0]
        server.wait("left", 1)


def test_a_thread_that_does_not_come_back_costs_its_worker(tmp_path):
    """After `timeout` more seconds the stacks are in the log, a replacement is loaded, and only then the worker leaves."""
    flags = ("--request-timeout", "0.2", "--timeout", "2", "--graceful-timeout", "1")
    with gated(tmp_path, STUBBORN, *flags) as server:
        assert server.busy(1).result(30).status_code == 504
        stuck = server.wait("entered", 1)
        arbiter = server.running.process.pid
        wait_until(lambda: stuck not in children(arbiter), "the stuck worker to leave")
        log = server.running.log
        assert "does not come back" in log
        assert "in predict\n" in log
        assert log.index("leaves: a model thread is stuck") > log.rindex("loaded in")
        assert log.count("loaded in") == 2
        wait_until(lambda: server.ask(2).result(30).status_code == 200, "the next answer")
        assert server.wait("entered", 2) != stuck


def test_a_slow_thread_whose_client_waits_is_left_alone(tmp_path):
    """`timeout` ends no request that somebody waits for."""
    with gated(tmp_path, STUBBORN, "--timeout", "1") as server:
        first = server.busy(1)
        worker = server.wait("entered", 1)
        # Another client gives up: it must not be taken for the one that the thread works for.
        assert server.ask(2, **{"x-request-timeout": "1.5"}).result(30).status_code == 503
        server.release(1)
        assert first.result(30).status_code == 200
        assert children(server.running.process.pid) == {worker}


def test_a_request_is_never_answered_twice(tmp_path):
    """After a 504 the connection is as good as before: the late answer of the model is nobody's."""
    with gated(tmp_path, STUBBORN) as server:
        server.hold(1)
        with server.raw(1, head="X-Request-Timeout: 0.2\r\n") as client:
            assert client.recv(65536).startswith(b"HTTP/1.1 504")
            server.release(1)
            server.wait("left", 1)
            client.sendall(request(2))
            answer = client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.count(b"HTTP/1.1") == 1

"""What clients see of a server that is told to stop: nothing is reset, whatever the worker class."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time

import pytest

from gated import SLEEPING, STREAM, body, gated, of_class
from running import wait_until

CLASSES = ("asgi", "sync", "gthread", "gevent")
each_class = pytest.mark.parametrize("worker_class", CLASSES)
FOREVER = "600"


def term(server):
    server.running.process.send_signal(signal.SIGTERM)


def is_closed(server):
    with socket.socket() as probe:
        probe.settimeout(20)
        return probe.connect_ex(("127.0.0.1", server.running.port)) != 0


def ask(connection, number=7):
    connection.request("POST", "/predict", json.dumps(body(number)), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer


@each_class
def test_the_port_closes_while_what_is_in_flight_goes_on(tmp_path, worker_class):
    """After TERM new connections are refused, in every process, though a request is still at it; that one is answered."""
    with gated(tmp_path, SLEEPING, "--worker-class", worker_class, "--graceful-timeout", FOREVER) as server:
        asked = server.busy(1)
        term(server)
        wait_until(lambda: is_closed(server), "a closed port")
        assert not asked.done()
        server.release(1)
        assert asked.result(30).status_code == 200
        assert server.running.process.wait(30) == 0


@each_class
def test_a_stream_is_finished(tmp_path, worker_class):
    """A stream that has begun goes on to its end."""
    with gated(tmp_path, STREAM, "--worker-class", worker_class, "--graceful-timeout", FOREVER) as server:
        server.hold(1)
        with server.raw(1, "/v2/models/Model/generate_stream", "Connection: close\r\n") as client:
            got = client.recv(65536)
            server.wait("entered", 1)
            term(server)
            wait_until(lambda: is_closed(server), "a closed port")
            server.release(1)
            while more := client.recv(65536):
                got += more
        assert got.count(b"data:") == 3
        assert server.running.process.wait(30) == 0


@each_class
def test_grace_answers_as_before_and_then_the_port_closes(tmp_path, worker_class):
    """For `drain_grace` requests are answered on new and on kept connections, which are then closed; exit status 0."""
    with gated(tmp_path, SLEEPING, "--worker-class", worker_class, "--drain-grace", "2") as server:
        kept = http.client.HTTPConnection("127.0.0.1", server.running.port, timeout=30)
        assert ask(kept).status == 200
        term(server)
        wait_until(lambda: server.running.client().get("/ready").status_code == 503, "503")
        assert ask(kept).getheader("connection", "").lower() == "close"
        fresh = http.client.HTTPConnection("127.0.0.1", server.running.port, timeout=30)
        answer = ask(fresh)
        assert (answer.status, answer.getheader("connection", "").lower()) == (200, "close")
        kept.close()
        fresh.close()
        assert server.running.process.wait(30) == 0
        assert is_closed(server)


@pytest.mark.parametrize("worker_class", ["asgi", "gthread", "gevent"])
def test_a_kept_connection_is_answered_while_the_server_stops(tmp_path, worker_class):
    """A request on an idle connection just after TERM gets its answer, with `Connection: close`."""
    with gated(
        tmp_path, SLEEPING, "--worker-class", worker_class, "--graceful-timeout", FOREVER, "--threads", "2"
    ) as server:
        kept = http.client.HTTPConnection("127.0.0.1", server.running.port, timeout=30)
        assert ask(kept).status == 200
        asked = server.busy(1)
        term(server)
        answer = ask(kept)
        assert answer.status == 200
        server.release(1)
        assert asked.result(30).status_code == 200
        kept.close()
        assert server.running.process.wait(30) == 0


@each_class
@pytest.mark.parametrize("grace", ["0", FOREVER])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT], ids=lambda each: each.name)
def test_a_second_signal_waits_for_nobody(tmp_path, worker_class, grace, second):
    """TERM, QUIT or INT after TERM ends the server at once, in `drain_grace` and after it; exit status 0."""
    flags = ("--graceful-timeout", FOREVER, "--drain-grace", grace, "--worker-class", worker_class)
    with gated(tmp_path, SLEEPING, *flags) as server:
        asked = server.busy(1)
        term(server)
        wait_until(lambda: "stopping" in server.running.log, "the drain")
        assert server.running.stop(second) == 0
        assert asked.exception(30) is not None or asked.result().status_code >= 500


@each_class
def test_nobody_is_reset_while_the_server_stops(tmp_path, worker_class):
    """Clients that come without a pause on new connections are answered or refused: none is accepted and then dropped."""
    flags = ("--workers", "2", *of_class(worker_class))
    with gated(tmp_path, SLEEPING, *flags) as server:
        answered = []
        dropped = []

        def come():
            while True:
                client = http.client.HTTPConnection("127.0.0.1", server.running.port, timeout=30)
                try:
                    client.connect()
                except OSError:
                    return  # refused: the port is closed
                try:
                    answered.append(ask(client).status)
                except (OSError, http.client.HTTPException) as error:
                    dropped.append(repr(error))
                finally:
                    client.close()

        clients = [threading.Thread(target=come) for _ in range(8)]
        for each in clients:
            each.start()
        wait_until(lambda: len(answered) > 50, "traffic")
        term(server)
        for each in clients:
            each.join(60)
        assert server.running.process.wait(30) == 0
        assert dropped == []
        assert set(answered) == {200}


@each_class
def test_who_waits_in_the_backlog_is_answered(tmp_path, worker_class):
    """Connections that wait to be accepted when TERM comes are answered like those that were."""
    with gated(tmp_path, SLEEPING, "--worker-class", worker_class, "--threads", "1") as server:
        asked = server.busy(1)
        late = [server.raw(number) for number in (2, 3, 4)]
        term(server)
        wait_until(lambda: is_closed(server), "a closed port")
        server.release(1)
        assert asked.result(30).status_code == 200
        for each in late:
            assert each.recv(12) == b"HTTP/1.1 200"
            each.close()
        assert server.running.process.wait(30) == 0


def test_graceful_timeout_bounds_the_drain(tmp_path):
    """What is still at it after `graceful_timeout` is cut off."""
    with gated(tmp_path, SLEEPING, "--graceful-timeout", "1") as server:
        asked = server.busy(1)
        begun = time.monotonic()
        assert server.running.stop() == 0
        assert time.monotonic() - begun >= 1
        assert asked.exception(30) is not None

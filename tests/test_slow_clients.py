"""Clients that say nothing, or little, or never hang up: they wait, everybody else is served."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gated import body, gated, of_class, request
from prefork.processes.arrival import LOOK, needed
from running import wait_until

each_class = pytest.mark.parametrize("worker_class", ["asgi", "sync", "gthread", "gevent"])

ECHO = """
import numpy as np

class Model:
    def predict(self, X, names):
        return np.zeros((int(X[0][0]), 1000)) if X[0][0] > 100 else X
"""

WHOLE = request(1)
HEAD = WHOLE.partition(b"\r\n\r\n")[0]
BODY = HEAD + b"\r\n\r\n"
TYPE = "Content-Type: application/json\r\n"
KINDS = {"idle": b"", "head": HEAD[:-10], "body": BODY}


class Crowd:
    """Clients that have begun a request in one of the ways of KINDS, and go on with one byte at a time."""

    def __init__(self, port: int, count: int, kinds=tuple(KINDS)) -> None:
        self._stop = threading.Event()
        self.clients = []
        for number in range(count):
            kind = kinds[number % len(kinds)]
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            client.sendall(KINDS[kind])
            client.settimeout(0)
            self.clients.append((kind, client))
        self._thread = threading.Thread(target=self._trickle)
        self._thread.start()

    def _trickle(self) -> None:
        while not self._stop.wait(0.1):
            for kind, client in self.clients:
                if kind != "idle":
                    with suppress(OSError):
                        client.send(b" " if kind == "body" else b"x")

    def open(self) -> int:
        return sum(not is_closed(client) for _, client in self.clients)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()
        for _, client in self.clients:
            client.close()


# A body that takes for ever has to be announced as long.
KINDS["body"] = KINDS["body"].replace(b"Content-Length: ", b"Content-Length: 1")


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@contextmanager
def never_closing(port: int, count: int):
    """Clients that ask for `Connection: close`, have their answer, and keep their end open."""
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client.sendall(request(1, head="Connection: close\r\n"))
            assert client.recv(12) == b"HTTP/1.1 200"
        yield


@pytest.mark.parametrize("worker_class", ["asgi", "gthread", "gevent"])
def test_200_slow_clients_keep_nobody_waiting(tmp_path, worker_class):
    """With 200 connections that are idle, or trickle their heads or bodies, or never close, requests are answered."""
    flags = (*of_class(worker_class), "--read-timeout", "600", "--keepalive", "600")
    with gated(tmp_path, ECHO, *flags) as server:
        port = server.running.port
        with Crowd(port, 150) as crowd, never_closing(port, 50):
            begun = time.monotonic()
            for _ in range(20):
                with server.running.client() as client:
                    assert client.post("/predict", json=body(1)).status_code == 200
                    assert client.get("/ready").status_code == 200
            assert time.monotonic() - begun < 30
            assert crowd.open() == 150 or worker_class != "asgi"


@each_class
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_request_has_read_timeout_to_come(tmp_path, worker_class, kind):
    """A connection whose request is not whole after `read_timeout` is closed, however it spends the time; others are served then."""
    flags = (*of_class(worker_class), "--read-timeout", "1")
    with gated(tmp_path, ECHO, *flags) as server, Crowd(server.running.port, 3, (kind,)) as crowd:
        with server.running.client() as client:
            client.timeout = 60
            assert client.post("/predict", json=body(1)).status_code == 200
        wait_until(
            lambda: not crowd.open() or all(answered(client) for _, client in crowd.clients), "the end of the slow ones"
        )


def answered(client: socket.socket) -> bool:
    with suppress(OSError):
        return client.recv(16, socket.MSG_PEEK).startswith((b"HTTP/1.1 408", b"HTTP/1.1 4"))
    return is_closed(client)


@pytest.mark.parametrize("worker_class", ["asgi", "gthread"])
def test_a_body_that_stalls_gets_408(tmp_path, worker_class):
    """Where the server reads the body itself, the client is told that it was too slow."""
    with gated(tmp_path, ECHO, *of_class(worker_class), "--read-timeout", "1") as server:
        with socket.create_connection(("127.0.0.1", server.running.port), timeout=60) as client:
            size = LOOK * 4
            head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
            client.sendall(head + b" " * LOOK)
            assert client.recv(4096).startswith(b"HTTP/1.1 408")


@each_class
def test_a_big_body_may_take_longer_than_read_timeout(tmp_path, worker_class):
    """What comes at more than a KiB a second is not slow."""
    with gated(tmp_path, ECHO, *of_class(worker_class), "--read-timeout", "1") as server:
        with socket.create_connection(("127.0.0.1", server.running.port), timeout=60) as client:
            content = json.dumps(body(1)).encode() + b" " * 60_000
            client.sendall(
                f"POST /predict HTTP/1.1\r\nHost: x\r\n{TYPE}Content-Length: {len(content)}\r\n\r\n".encode()
            )
            begun = time.monotonic()
            for start in range(0, len(content), 4000):
                client.sendall(content[start : start + 4000])
                while time.monotonic() < begun + start / 25_000:
                    threading.Event().wait(0.01)
            assert client.recv(4096).startswith(b"HTTP/1.1 200")


@each_class
def test_a_client_that_does_not_read_is_cut_off(tmp_path, worker_class):
    """An answer of which the client takes nothing for `read_timeout` is given up, and the worker serves on."""
    flags = (*of_class(worker_class), "--read-timeout", "1", "--graceful-timeout", "600")
    with gated(tmp_path, ECHO, *flags) as server, ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.running.port))
            client.sendall(request(5000))
        with server.running.client() as other:
            other.timeout = 60
            assert other.post("/predict", json=body(1)).status_code == 200
        # Nothing holds the end up: with a client that is waited for, this would take for ever.
        assert server.running.stop() == 0


def test_a_worker_that_closes_waits_for_no_client(tmp_path):
    """A sync worker serves the next client although the one before keeps its end open."""
    with gated(tmp_path, ECHO, "--worker-class", "sync") as server, never_closing(server.running.port, 20):
        with server.running.client() as client:
            assert client.post("/predict", json=body(1)).status_code == 200


@pytest.mark.parametrize(
    ("seen", "more"),
    [
        (b"", 1),
        (b"GET / HTT", 10),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0),
        (b"GET / HTTP/1.1\n\n", 0),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n12", 43),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345", 0),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", LOOK),
        (b"POST / HTTP/1.1\r\nContent-Length: nonsense\r\n\r\n", 0),
        (b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", 0),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345", 56),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n", 0),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 0),
        (b"x" * LOOK, 0),
    ],
)
def test_what_has_to_arrive_before_a_thread_is_given(seen, more):
    """The number of bytes at which it is worth looking again; 0 for a request that is there whole."""
    assert needed(seen) == more


@given(st.binary(max_size=200), st.integers(0, 300))
def test_a_request_is_whole_exactly_when_its_last_byte_is_there(content, cut):
    """Of a request of announced length every true beginning asks for more, at most for all of it."""
    whole = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(content) + content
    seen = whole[:cut]
    assert needed(whole) == 0
    if len(seen) < len(whole):
        assert len(seen) < needed(seen) <= len(whole)

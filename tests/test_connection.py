"""What a connection of the ASGI worker puts on the wire: the same whether an answer goes out directly or as ASGI's messages."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Self

import numpy as np
import pytest
from gunicorn.http.errors import InvalidHeader

from prefork.http import Response
from prefork.processes.head import CHUNKED, head
from running import Running, serving, wait_until

MODEL = """
    import numpy as np


    class Nothing(Exception):
        status_code = 204


    class Model:
        def predict(self, X, names=None):
            if X.size == 1:
                raise Nothing("nothing to say")
            return np.tile(X, (1000, 1))
"""
PARTS = """
    class Model:
        def predict(self, X):
            yield from ("one", "two")
"""
WAYS = {"direct": (), "messages": ("--access-log",)}
TWO = [[1.0, 2.0]]


@pytest.fixture(scope="module", params=WAYS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of a model; the access log is written by gunicorn, which needs ASGI's messages."""
    with serving(tmp_path_factory.mktemp("model"), MODEL, "--workers", "1", *WAYS[request.param]) as running:
        yield running


@pytest.fixture(scope="module", params=WAYS)
def streaming(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """As `server`, of a model that answers in parts."""
    with serving(tmp_path_factory.mktemp("parts"), PARTS, "--workers", "1", *WAYS[request.param]) as running:
        yield running


class Wire:
    """A socket on which requests are written as text."""

    def __init__(self, running: Running) -> None:
        self.socket = socket.create_connection(("127.0.0.1", running.port), timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, method: str, path: str, body: bytes = b"", *headers: str, version: str = "1.1") -> HTTPResponse:
        """Send a request, and read the head of its answer."""
        lines = [f"{method} {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *headers]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        answer = HTTPResponse(self.socket, method=method)
        answer.begin()
        return answer

    def predict(self, ndarray: list[list[float]], *headers: str) -> HTTPResponse:
        """Seldon's predict."""
        body = json.dumps({"data": {"ndarray": ndarray}}).encode()
        return self.ask("POST", "/predict", body, "Content-Type: application/json", *headers)

    def is_closed(self) -> bool:
        """Whether the server ends the connection; for one that it does not this takes the time of a request."""
        try:
            self.socket.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
            return not self.socket.recv(1)
        except ConnectionError:
            return True


def test_an_answer_has_a_length_and_the_connection_stays(server: Running):
    """Content-Length is that of the body, Date and Server are there once, and the next request goes the same way."""
    with Wire(server) as wire:
        for _ in range(2):
            answer = wire.predict(TWO)
            body = answer.read()
            assert (answer.status, answer.getheader("content-length")) == (200, str(len(body)))
            assert [answer.headers.get_all(name, []) for name in ("server", "connection")] == [["gunicorn/asgi"], []]
            assert len(answer.headers.get_all("date", [])) == 1
            assert len(json.loads(body)["data"]["ndarray"]) == 1000


def test_close_is_announced_and_done(server: Running):
    """Who asks for the connection to be closed is told so, and it is."""
    with Wire(server) as wire:
        answer = wire.predict(TWO, "Connection: close")
        assert answer.getheader("connection").lower() == "close"
        answer.read()
        assert wire.is_closed()


def test_an_answer_to_head_has_the_length_and_no_body(server: Running):
    """HEAD says how long GET's body is, and the connection stays in step."""
    with Wire(server) as wire:
        assert wire.ask("HEAD", "/health/ping").getheader("content-length") == "4"
        answer = wire.ask("GET", "/health/ping")
        assert answer.read() == b"pong"


def test_a_status_without_a_body_has_none(server: Running):
    """A 204 has neither body nor Content-Length, whatever the error's text, and the connection stays in step."""
    with Wire(server) as wire:
        answer = wire.predict([[1.0]])
        assert (answer.status, answer.getheader("content-length"), answer.read()) == (204, None, b"")
        assert wire.predict(TWO).status == 200


def test_tensors_of_many_bytes_arrive_whole(server: Running):
    """An answer of a head and tensors too large to be joined is sent as it is."""
    x = np.random.default_rng(1).random((1, 100))
    tensor = {"name": "X", "shape": [1, 100], "datatype": "FP64", "parameters": {"binary_data_size": x.nbytes}}
    said = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    with Wire(server) as wire:
        for _ in range(2):
            body = said + x.tobytes()
            answer = wire.ask("POST", "/v2/models/Model/infer", body, f"Inference-Header-Content-Length: {len(said)}")
            got = answer.read()
            start = int(answer.getheader("inference-header-content-length") or -1)
            assert np.array_equal(np.frombuffer(got[start:]).reshape(1000, 100), np.tile(x, (1000, 1)))


def test_a_stream_is_chunked(streaming: Running):
    """Over HTTP/1.1 each part is a chunk, the last one ends the stream, and the connection stays."""
    with Wire(streaming) as wire:
        for _ in range(2):
            answer = wire.ask("POST", "/v2/models/Model/generate_stream", b'{"X": 1}')
            assert answer.getheader("transfer-encoding") == "chunked"
            assert answer.read().count(b"data: ") == 2


def test_a_stream_over_http_1_0_ends_with_the_connection(streaming: Running):
    """HTTP/1.0 knows no chunks: the parts are sent as they are."""
    with Wire(streaming) as wire:
        answer = wire.ask("POST", "/v2/models/Model/generate_stream", b'{"X": 1}', version="1.0")
        assert answer.getheader("transfer-encoding") is None
        body = answer.read()
        assert body.count(b"data: ") == 2
        assert body.endswith(b"\n\n")
        assert wire.is_closed()


def test_a_header_cannot_split_the_response():
    """A header with a line break in it is refused."""
    with pytest.raises(InvalidHeader):
        head((1, 1), Response(headers=[("X-Said", "a\r\nX-More: b")]), CHUNKED, close=False)


def test_headers_of_the_response_win_over_the_servers():
    """A response that has its own Date, Server or Connection keeps it alone."""
    own = [("Date", "then"), ("Server", "mine"), ("Connection", "close")]
    text = head((1, 1), Response(headers=own), b"content-length: 0\r\n", close=True).lower()
    assert [text.count(b"\r\n%b:" % name.lower().encode()) for name, _ in own] == [1, 1, 1]


def test_a_connection_that_has_gone_leaves_nothing(tmp_path):
    """However many connections have come and gone, the event loop has no task for any of them."""
    source = """
    import asyncio

    class Model:
        async def predict(self, X, names=None):
            return [[len(asyncio.all_tasks())]]
    """
    body = {"data": {"ndarray": [[1]]}}
    with serving(tmp_path, source, "--workers", "1") as server, server.client() as client:

        def tasks() -> float:
            return client.post("/predict", json=body).json()["data"]["ndarray"][0][0]

        before = tasks()
        for _ in range(100):
            with server.client() as passing:
                assert passing.get("/live").status_code == 200
        wait_until(lambda: tasks() <= before, "the end of all tasks", 2.0)

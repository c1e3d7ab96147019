"""What a worker's clients see that no application decides: errors, limits, idle and half-closed connections."""

from __future__ import annotations

import json
import os
from contextlib import closing

import pytest

from watched import Watched, until

CLASSES = ("asgi", "sync", "gthread", "gevent")


@pytest.fixture(scope="module", params=CLASSES)
def server(request, tmp_path_factory):
    """A server of each worker class, with one worker and short limits."""
    settings = {"gunicorn": {"limit_request_line": 200, "limit_request_fields": 10}, "threads": 1}
    with Watched(tmp_path_factory.mktemp("probe"), worker_class=request.param, workers=1, **settings) as server:
        yield server.ready()


@pytest.fixture
def served(tmp_path):
    servers = []

    def start(**settings):
        servers.append(Watched(tmp_path, workers=1, **settings))
        return servers[-1].ready()

    yield start
    for server in servers:
        server.__exit__()


def talk(server, data):
    """Everything that the server says to some bytes, until it closes."""
    with closing(server.connect()) as client:
        client.sendall(data)
        return b"".join(iter(lambda: client.recv(65536), b""))


def parsed(raw):
    """(status, headers, JSON) of one raw response."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    assert int(headers["content-length"]) == len(body)
    return int(status.split()[1]), headers, json.loads(body)


REFUSED = {
    "no request": (b"nonsense\r\n\r\n", 400),
    "long request line": (b"GET /" + b"a" * 300 + b" HTTP/1.1\r\n\r\n", 414),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(20)) + b"\r\n", 431),
    "transfer coding": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: strange\r\n\r\n", 400),
    "application error": (b"GET /boom HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 500),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_gunicorn_refuses_is_refused_in_json(server, case):
    """Each error that gunicorn itself writes has its status, is JSON, and has fields for Seldon's and V2's clients."""
    sent, expected = REFUSED[case]
    status, headers, body = parsed(talk(server, sent))
    assert status == expected
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert body["error"]
    assert body["status"]["info"] == body["error"]
    assert body["status"]["status"] == 1
    assert body["status"]["code"] == -1
    assert body["status"]["reason"].isupper()


def test_a_client_that_says_nothing_stops_nobody(served):
    """A connection without a word does not keep the others out, and on the sync worker it is closed after a while."""
    server = served(worker_class="sync")
    with closing(server.connect()) as silent:
        assert server.ask()["pid"] in server.workers
        assert silent.recv(1) == b""


def test_a_client_that_does_not_close_stops_nobody(served):
    """On gthread a client that asked for the connection to be closed and keeps its end open delays nobody else."""
    server = served(worker_class="gthread", threads=2)
    half = [server.connect() for _ in range(4)]
    for each in half:
        each.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert b"".join(iter(lambda each=each: each.recv(65536), b"")).startswith(b"HTTP/1.1 200")
    assert server.ask()["pid"] in server.workers
    assert all(map(is_half_open, half))
    for each in half:
        each.close()


def is_half_open(client):
    """Whether the server has not given up its side: what is sent to it is not answered with a reset."""
    client.sendall(b"more")
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return False


@pytest.mark.parametrize("worker_class", ["asgi", "gthread"])
def test_an_idle_connection_is_closed_after_keepalive(served, worker_class):
    """A connection that has been idle for `keepalive` seconds is closed."""
    server = served(worker_class=worker_class, keepalive=1)
    with closing(server.connect()) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        while client.recv(65536):
            pass


def test_a_client_that_never_asks_is_closed_after_keepalive(served):
    """The same goes for a connection on which no request, or half a one, has come."""
    server = served(keepalive=1)
    with closing(server.connect()) as silent, closing(server.connect()) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHos")
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""


def test_a_kept_connection_serves_many_requests(server):
    """A connection is kept, except by the sync worker, which says that it closes."""
    client = server.client()
    status, headers, _ = server.get("/", client)
    assert status == 200
    if server.settings["worker_class"] == "sync":
        assert headers["Connection"] == "close"
        return
    first = client.sock
    for _ in range(5):
        assert server.get("/", client)[0] == 200
        assert client.sock is first
    client.close()


def test_an_answer_before_the_end_of_the_body_arrives(served):
    """An application that answers without reading a large body is heard: the connection is not reset under the answer."""
    server = served()
    body = os.urandom(1 << 16) * 256
    with closing(server.connect()) as client:
        client.sendall(b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body))
        client.sendall(body[: 1 << 20])
        assert client.recv(12) == b"HTTP/1.1 413"
        client.sendall(body[1 << 20 :])
        assert b"".join(iter(lambda: client.recv(65536), b"")).endswith(b"{}")


def test_pipelined_requests_are_answered_in_order(served):
    """Requests that come in one piece are each answered."""
    one = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert talk(served(), one * 3 + last).count(b"HTTP/1.1 200") == 4


def test_the_parser_in_c_is_used(served):
    """Connections of the ASGI worker are parsed by gunicorn_h1c where it is installed."""
    gunicorn_h1c = pytest.importorskip("gunicorn_h1c")
    from prefork.processes.connection import Connection

    assert Connection._h1c_protocol_class is gunicorn_h1c.H1CProtocol
    # gunicorn reads what it has found out from the class that is its own:
    assert Connection.__mro__[1]._h1c_has_limits


def test_the_users_own_logging_comes_out(served):
    """A model's loggers reach the log in its form, whatever their names."""
    server = served(log_level="debug")
    server.get("/log")
    until(lambda: "[WARNING] the model has something to say" in server.log)


def test_the_access_log_has_a_line_for_each_request(served):
    """With `access_log` each request is logged on standard output."""
    server = served(access_log=True)
    server.ask()
    until(lambda: '"GET / HTTP/1.1" 200' in server.log)

"""Answers through a sender on a real server: clients that hang up, threads that do not come back, and the end."""

from __future__ import annotations

import json
import signal
import socket
from contextlib import contextmanager

import pytest

from gated import Gated, children, gated, of_class
from running import wait_until

MODEL = """
import os, pathlib, threading, time
from prefork import Sender

PLACE = pathlib.Path(os.environ["PLACE"])
KEPT = []

def mark(what, n):
    new = PLACE / f"{what}.{n}.{os.getpid()}.{threading.get_ident()}"
    new.write_text(str(os.getpid()))
    new.rename(PLACE / f"{what}.{n}")

def held(n):
    return (PLACE / f"hold.{n}").exists()

def watch(n, sender):
    while held(n) and not sender.cancelled():
        time.sleep(0.005)
    if sender.cancelled():
        mark("cancelled", n)
    mark(f"took-{sender.send({'word': 'late'})}", n)
    sender.close()

def die(n, sender):
    raise RuntimeError("this thread dies")

class Model:
    def predict(self, n: int, do: str, sender: Sender):
        mark("entered", n)
        sender.send({"word": "first"})
        getattr(self, do)(n, sender)
        mark("left", n)

    def watch(self, n, sender):
        threading.Thread(target=watch, args=(n, sender), daemon=True).start()

    def keep(self, n, sender):
        KEPT.append(sender)

    def die(self, n, sender):
        threading.Thread(target=die, args=(n, sender), daemon=True).start()

    def stay(self, n, sender):
        while held(n):
            time.sleep(0.005)
        sender.close()
"""

LATER = MODEL.replace("    def predict", "    async def predict")
FOREVER = "600"

each_class = pytest.mark.parametrize(
    "flags",
    [
        of_class("asgi"),
        (*of_class("asgi"), "--threads", "0"),
        of_class("sync"),
        of_class("gthread"),
        of_class("gevent"),
    ],
    ids=["asgi", "inline", "sync", "gthread", "gevent"],
)


@contextmanager
def asked(server: Gated, number: int, do: str):
    """A request whose first part has arrived; the socket, and what came."""
    content = json.dumps({"n": number, "do": do})
    head = f"POST /v2/models/Model/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.running.port), timeout=60) as client:
        client.sendall((head + content).encode())
        got = b""
        while b"first" not in got:
            piece = client.recv(65536)
            assert piece, got
            got += piece
        yield client, got


def rest(client: socket.socket, got: bytes) -> bytes:
    """All of the answer, to its last chunk or the connection's end."""
    while not got.endswith(b"0\r\n\r\n") and (more := client.recv(65536)):
        got += more
    return got


@each_class
@pytest.mark.parametrize("source", [MODEL, LATER], ids=["plain", "async"])
def test_parts_arrive_as_they_are_sent(tmp_path, source, flags):
    """The first part is with the client while the second is not made yet; a thread that has nothing to do with the server sends it."""
    with gated(tmp_path, source, *flags) as server:
        server.hold(1)
        with asked(server, 1, "watch") as (client, got):
            assert b"late" not in got
            server.wait("left", 1)
            server.release(1)
            whole = rest(client, got)
        assert whole.count(b"data:") == 2
        assert b"late" in whole
        server.wait("took-True", 1)


@each_class
@pytest.mark.parametrize("source", [MODEL, LATER], ids=["plain", "async"])
def test_a_client_that_hangs_up_cancels(tmp_path, source, flags):
    """`cancelled()` tells the model, and what it sends then is dropped; the server answers the next one."""
    with gated(tmp_path, source, *flags) as server:
        server.hold(1)
        with asked(server, 1, "watch"):
            pass
        server.wait("cancelled", 1)
        server.wait("took-False", 1)
        with asked(server, 2, "watch") as (client, got):
            assert b"late" in rest(client, got)


@pytest.mark.parametrize("flags", [of_class("asgi"), of_class("gthread"), of_class("gevent")], ids=lambda f: f[1])
def test_requests_are_answered_side_by_side(tmp_path, flags):
    """One whose `predict` stays keeps no other one waiting where there are more threads, or greenlets."""
    with gated(tmp_path, MODEL, *flags) as server:
        server.hold(1)
        with asked(server, 1, "stay") as (first, got):
            with asked(server, 2, "stay") as (client, other):
                assert rest(client, other).count(b"data:") == 1
            with asked(server, 3, "stay") as (client, other):
                assert rest(client, other).count(b"data:") == 1
            assert not server.has("left", 1)
            server.release(1)
            assert rest(first, got).count(b"data:") == 1


@each_class
def test_a_thread_that_dies_ends_its_request(tmp_path, flags):
    """When the only holder of a sender dies, the client is told at once."""
    with gated(tmp_path, MODEL, *flags) as server, asked(server, 1, "die") as (client, got):
        assert b"without close()" in rest(client, got)


def test_requests_under_way_are_not_bounded_by_threads(tmp_path):
    """With one model thread, twenty answers are open at once."""
    with gated(tmp_path, MODEL, "--threads", "1") as server:
        server.hold(1)
        opened = [asked(server, 1, "watch") for _ in range(20)]
        talks = [each.__enter__() for each in opened]
        server.release(1)
        assert all(b"late" in rest(client, got) for client, got in talks)
        for each in opened:
            each.__exit__(None, None, None)


@pytest.mark.parametrize("flags", [of_class("asgi"), of_class("gthread")], ids=["asgi", "gthread"])
def test_a_kept_sender_does_not_hold_the_server_up(tmp_path, flags):
    """What is not closed within `graceful_timeout` ends with an error that the client gets; exit status 0."""
    with gated(tmp_path, MODEL, *flags, "--graceful-timeout", "1") as server:
        with asked(server, 1, "keep") as (client, got):
            server.wait("left", 1)
            server.running.process.send_signal(signal.SIGTERM)
            assert b"being unloaded" in rest(client, got)
        assert server.running.process.wait(30) == 0


def test_a_predict_that_does_not_come_back_costs_its_worker(tmp_path):
    """Its client has gone, and `timeout` later the worker is replaced, as for a model without a sender."""
    with gated(tmp_path, MODEL, "--timeout", "1", "--graceful-timeout", "1") as server:
        server.hold(1)
        stuck = 0
        with asked(server, 1, "stay"):
            stuck = server.wait("entered", 1)
        wait_until(lambda: stuck not in children(server.running.process.pid), "the stuck worker to leave")
        assert "does not come back" in server.running.log
        with asked(server, 2, "stay") as (client, got):
            assert rest(client, got).count(b"data:") == 1

"""Back-pressure: how many requests wait, who is refused, and that nobody computes for a client that has left."""

from __future__ import annotations

import time

import pytest

from gated import ASYNC, SLEEPING, STREAM, STUBBORN, gated
from running import wait_until


@pytest.mark.parametrize("worker_class", ["asgi", "gthread"])
def test_a_full_queue_refuses_at_once(tmp_path, worker_class):
    """With `max_queue` requests waiting for the model, one more gets 503 with Retry-After; those that wait are answered."""
    flags = ("--max-queue", "2", "--threads", "1", "--worker-class", worker_class)
    with gated(tmp_path, STUBBORN, *flags) as server:
        first = server.busy(1)
        others = [server.ask(number) for number in (2, 3, 4, 5)]
        wait_until(lambda: sum(each.done() for each in others) == 2, "two refusals")
        for each in others:
            if each.done():
                answer = each.result()
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "1"
                assert "max_queue" in answer.text
        server.release(1)
        assert first.result(30).status_code == 200
        assert sorted(each.result(30).status_code for each in others) == [200, 200, 503, 503]
        assert server.ask(6).result(30).status_code == 200


def test_probes_pass_a_full_queue(tmp_path):
    """What does not ask the model is answered however many wait for it."""
    with gated(tmp_path, STUBBORN, "--max-queue", "1") as server:
        server.busy(1)
        waiting = [server.ask(2), server.ask(3)]
        wait_until(lambda: any(each.done() for each in waiting), "a refusal")
        with server.running.client() as client:
            for path in ("/live", "/ready", "/v2/health/live", "/v2/health/ready", "/health/ping", "/v2/models/Model"):
                assert client.get(path).status_code == 200


def test_max_queue_0_is_no_limit(tmp_path):
    """With `max_queue` 0 nobody is refused."""
    with gated(tmp_path, STUBBORN, "--max-queue", "0") as server:
        first = server.busy(1)
        others = [server.ask(number) for number in range(2, 40)]
        server.release(1)
        assert {each.result(30).status_code for each in (first, *others)} == {200}


@pytest.mark.parametrize("worker_class", ["asgi", "gthread"])
def test_who_hangs_up_in_the_queue_is_never_computed(tmp_path, worker_class):
    """A request whose client has left while it waited does not reach the model, and its place in the queue is free."""
    with gated(tmp_path, STUBBORN, "--max-queue", "2", "--worker-class", worker_class, "--threads", "1") as server:
        first = server.busy(1)
        gone = server.raw(2)
        after = server.raw(3)
        gone.close()
        if worker_class == "gthread":  # which looks only for those that have waited for a moment
            hung_up = time.monotonic()
            wait_until(lambda: time.monotonic() - hung_up > 0.5, "a moment")
        if worker_class == "asgi":
            last = server.ask(4)  # has a place only because the one that left has given its own up
        server.release(1)
        assert first.result(30).status_code == 200
        assert after.recv(12) == b"HTTP/1.1 200"
        after.close()
        if worker_class == "asgi":
            assert last.result(30).status_code == 200
        assert server.ask(5).result(30).status_code == 200
        assert server.has("entered", 3)
        assert not server.has("entered", 2)


@pytest.mark.parametrize(
    "flags", [("--threads", "1"), ("--worker-class", "gthread", "--threads", "2"), ("--worker-class", "sync")]
)
def test_a_model_sees_that_its_client_has_left(tmp_path, flags):
    """While it computes, `meta["cancelled"]()` becomes true when the client hangs up."""
    with gated(tmp_path, SLEEPING, *flags) as server:
        server.hold(1)
        client = server.raw(1)
        server.wait("entered", 1)
        assert not server.has("cancelled", 1)
        client.close()
        server.wait("cancelled", 1)
        server.release(1)
        server.wait("left", 1)
        assert server.ask(2).result(30).status_code == 200


def test_a_stream_sees_that_its_client_has_left(tmp_path):
    """The same for a stream, which is closed at its next part."""
    with gated(tmp_path, STREAM) as server:
        server.hold(1)
        client = server.raw(1, "/v2/models/Model/generate_stream")
        server.wait("entered", 1)
        assert client.recv(12) == b"HTTP/1.1 200"
        client.close()
        server.wait("cancelled", 1)
        server.release(1)
        server.wait("left", 1)


def test_an_async_predict_is_cancelled_when_its_client_leaves(tmp_path):
    """An `async def predict` gets CancelledError at the await where it is."""
    with gated(tmp_path, ASYNC) as server:
        server.hold(1)
        client = server.raw(1)
        server.wait("entered", 1)
        client.close()
        server.wait("cancelled", 1)
        assert not server.has("left", 1)
        assert server.ask(2).result(30).status_code == 200

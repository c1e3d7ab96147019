"""How long a request may wait for its turn: `queue_timeout` and `timeout_action`, while nobody of the model looks at what waits."""

from __future__ import annotations

import select
import socket
import time

import msgspec
import pytest

from far_end import ANSWERED, CARD, MOST, WAYS, Far, answer
from prefork.errors import Unavailable
from prefork.frames.codec import encode_answer
from prefork.frames.layout import END, PREFIX
from prefork.payload import Kind, Payload
from prefork.repository.config import Batching, LevelQueue, ModelConfig
from running import wait_until

SHORT = 20_000
"""Microseconds."""


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def ask(request):
    """Asks an instance and gives the answers' values, in each of the ways there are."""
    return request.param


def card(**policy):
    return msgspec.structs.replace(CARD, config=ModelConfig(batching=Batching(max_batch_size=1, **policy)))


def request(**parameters):
    return Payload(Kind.TEXT, "x", parameters=parameters or None)


def left_unread(sock):
    """Read nothing until the other side hangs up."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    assert poll.poll(30_000)


def late(then):
    """Read the request, and do that when `queue_timeout` is long over."""

    def act(sock):
        sock.recv(MOST)
        until = time.monotonic() + 3 * SHORT / 1e6
        wait_until(lambda: time.monotonic() > until, "the time to be up")
        then(sock)

    return act


def test_expired(tmp_path, ask):
    """What nobody has read in its time is a 503 that says so, at once; it is hung up, so it is never computed."""
    with (
        Far(tmp_path / "s", left_unread) as far,
        pytest.raises(Unavailable, match="Request timeout expired") as caught,
    ):
        ask(far.instance(card(queue_timeout=SHORT)), request())
    assert caught.value.headers == (("Retry-After", "1"),)


def test_taken(tmp_path, ask):
    """Once the model has it, it may take what it takes."""
    with Far(tmp_path / "s", late(lambda sock: sock.sendall(ANSWERED))) as far:
        assert ask(far.instance(card(queue_timeout=SHORT)), request()) == ["well"]


def test_behind(tmp_path, ask):
    """Under `timeout_action: delay` it goes behind all that wait by then, as often as its time is up; nobody is refused."""
    with Far(tmp_path / "s", left_unread, left_unread, left_unread, left_unread, answer) as far:
        assert ask(far.instance(card(queue_timeout=SHORT, timeout_action="delay")), request()) == ["well"]
    assert far.seen == 5


def test_the_time_of_a_level(tmp_path, ask):
    """A level with a queue of its own has its own time, and the others have theirs, or none."""
    policy = card(priority_levels=2, priority_queues={1: LevelQueue(queue_timeout=SHORT)})
    with Far(tmp_path / "s", left_unread) as far, pytest.raises(Unavailable, match="expired"):
        ask(far.instance(policy), request(priority=1))
    with Far(tmp_path / "t", late(lambda sock: sock.sendall(ANSWERED))) as far:
        assert ask(far.instance(policy), request(priority=2)) == ["well"]


def test_a_stream_has_its_turn_once(tmp_path):
    """A stream's later parts may come as late as they come."""
    part, end = encode_answer(Payload(Kind.TEXT, "part")).whole(), PREFIX.pack(END, 0, 0, 0, 0)

    def stream(sock):
        late(lambda sock: sock.sendall(part))(sock)
        until = time.monotonic() + 3 * SHORT / 1e6
        wait_until(lambda: time.monotonic() > until, "the time to be up again")
        sock.sendall(part + end)

    with Far(tmp_path / "s", stream) as far:
        parts = [each.value for each in far.instance(card(queue_timeout=SHORT)).infer(request())]
        assert parts == ["part", "part"]


def test_full(tmp_path, ask):
    """Where requests are batched, who finds no room is told in the words of the batching queue."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        first.connect(str(tmp_path / "s"))
        far = Far.__new__(Far)
        far.path = str(tmp_path / "s")
        with pytest.raises(Unavailable, match="Exceeds maximum queue size"):
            ask(far.instance(card()), request())

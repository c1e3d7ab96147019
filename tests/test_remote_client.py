"""The worker's end, over against processes that go, refuse, or say nonsense at any moment."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import numpy as np
import pytest

from far_end import ANSWERED, CARD, MOST, WAYS, Far, answer, read, saying, unread
from instance_process import InstanceProcess
from prefork.errors import DeadlineExceeded, NotFound, NotImplementedHere, PayloadTooLarge, PreforkError, Unavailable
from prefork.frames.codec import encode_answer
from prefork.frames.layout import ANSWER, END, LAST, PREFIX
from prefork.payload import Kind, Payload
from prefork.remote import RemoteInstance
from prefork.remote.away import Away
from prefork.remote.talk import was_read
from running import wait_until


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def ask(request):
    """Asks an instance and gives the answers' values, in each of the ways there are."""
    return request.param


def test_never_asked(tmp_path, ask):
    """A request that the other side has not read is sent again, since no model can have seen it."""
    with Far(tmp_path / "s", unread, unread, answer) as far:
        assert ask(far.instance(), Payload(Kind.TEXT, "x")) == ["well"]
    assert far.seen == 3


def test_never_asked_for_ever(tmp_path, ask):
    """But not for ever: after three times it is a 503 that says when to come back."""
    with Far(tmp_path / "s", unread, unread, unread) as far, pytest.raises(Unavailable) as caught:
        ask(far.instance(), Payload(Kind.TEXT, "x"))
    assert caught.value.headers == (("Retry-After", "1"),)


def test_lost(tmp_path, ask):
    """One that was read is never sent again when its process goes: a 503 at once."""
    with Far(tmp_path / "s", read) as far, pytest.raises(Unavailable, match="has lost the process"):
        ask(far.instance(), Payload(Kind.TEXT, "x"))
    assert far.seen == 1


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense" * 10,
        ANSWERED[:-1],
        PREFIX.pack(ANSWER, 0, 0, 0, 1 << 60),
        PREFIX.pack(1, 0, 0, 0, 0),
        PREFIX.pack(4, 0, 0, 0, 0),
    ],
    ids=["no frame", "half", "too large", "a request", "an error of nothing"],
)
def test_nonsense(tmp_path, ask, data):
    """What is no answer is as good as none."""
    with Far(tmp_path / "s", saying(data)) as far, pytest.raises(Unavailable, match="has lost the process"):
        ask(far.instance(), Payload(Kind.TEXT, "x"))


def test_no_payload(tmp_path, ask):
    """A frame whose content is no answer is an error that says so."""
    data = PREFIX.pack(ANSWER, LAST, 0, 40, 0) + b"\x01" * 40
    with Far(tmp_path / "s", saying(data)) as far, pytest.raises(PreforkError, match="sent what is no answer"):
        ask(far.instance(), Payload(Kind.TEXT, "x"))


def test_no_arena(tmp_path, ask):
    """Nor may an answer lie in memory that was not lent."""
    data = encode_answer(Payload(Kind.TENSOR, np.ones(3))).beside(LAST)
    with Far(tmp_path / "s", saying(data)) as far, pytest.raises(PreforkError, match="there is no arena"):
        ask(far.instance(), Payload(Kind.TEXT, "x"))


def test_moved(tmp_path, ask):
    """Where nobody listens any more the address is asked for again."""
    paths = [str(tmp_path / "gone"), str(tmp_path / "closed"), str(tmp_path / "s")]
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(paths[1])
    with Far(tmp_path / "s", answer):
        instance = RemoteInstance(lambda _level: paths.pop(0), CARD)
        assert ask(instance, Payload(Kind.TEXT, "x")) == ["well"]


@pytest.mark.parametrize("act", [unread, read], ids=["that waits", "that is computed"])
def test_unloaded(tmp_path, ask, act):
    """A request whose model is unloaded before it is answered is a 503 that says so, and neither a 404 nor to be sent again."""

    def address(_level):
        raise NotFound("unknown")

    with Far(tmp_path / "s", act), pytest.raises(Unavailable, match="the model m was unloaded before") as caught:
        ask(RemoteInstance(address, CARD, known=str(tmp_path / "s")), Payload(Kind.TEXT, "x"))
    assert caught.value.headers == ()


def test_away(tmp_path, ask):
    """A model that is to be back in a moment is waited for, as long as the request has time: then it is a 503."""
    answers = [Away("away"), Away("away"), str(tmp_path / "s")]

    def address(_level):
        found = answers.pop(0) if answers else Away("away")
        if isinstance(found, str):
            return found
        raise found

    with Far(tmp_path / "s", answer):
        assert ask(RemoteInstance(address, CARD), Payload(Kind.TEXT, "x")) == ["well"]
    with pytest.raises(Unavailable, match="away") as caught:
        ask(RemoteInstance(address, CARD), Payload(Kind.TEXT, "x", deadline=time.monotonic() + 0.05))
    assert caught.value.headers == (("Retry-After", "1"),)


@pytest.mark.parametrize("known", ["s", "gone"])
def test_known(tmp_path, ask, known):
    """Where the process was last is tried first; when nobody is there any more, or goes unasked, the address is asked for."""
    asked_for = []

    def address(_level):
        asked_for.append(str(tmp_path / "s"))
        return asked_for[-1]

    with Far(tmp_path / "s", unread, answer, answer):
        instance = RemoteInstance(address, CARD, known=str(tmp_path / known))
        assert ask(instance, Payload(Kind.TEXT, "x")) == ["well"]
        assert len(asked_for) == (1 if known == "s" else 2)
        assert ask(instance, Payload(Kind.TEXT, "x")) == ["well"]
        assert len(asked_for) == (1 if known == "s" else 3)


@pytest.mark.parametrize(("answers", "count"), [(0, "none"), (2, "several")])
def test_not_one_answer(tmp_path, answers, count):
    """Who asks for the only answer is told, with status 500, of a model that gives none, or several."""
    part = encode_answer(Payload(Kind.TEXT, "part")).whole()
    with Far(tmp_path / "s", saying(part * answers + PREFIX.pack(END, 0, 0, 0, 0))) as far:
        with pytest.raises(NotImplementedHere, match=f"it produced {count}") as caught:
            asyncio.run(far.instance().answer_async(Payload(Kind.TEXT, "x")))
        assert caught.value.status == 500


def test_only_answer_in_two_frames(tmp_path):
    """The only answer may come apart from the end."""
    part = encode_answer(Payload(Kind.TEXT, "part")).whole()
    with Far(tmp_path / "s", saying(part + PREFIX.pack(END, 0, 0, 0, 0))) as far:
        assert asyncio.run(far.instance().answer_async(Payload(Kind.TEXT, "x"))).value == "part"


def test_long_path(tmp_path, ask, monkeypatch):
    """A socket's path may be longer than the kernel takes."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.chdir(folder)
    with Far("s", answer):
        instance = RemoteInstance(lambda _level: str(folder / "s"), CARD)
        assert ask(instance, Payload(Kind.TEXT, "x")) == ["well"]


def test_full(tmp_path, ask):
    """When as many wait as may, one more is refused at once."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        first.connect(str(tmp_path / "s"))
        instance = RemoteInstance(lambda _level: str(tmp_path / "s"), CARD)
        with pytest.raises(Unavailable, match="max_queue") as caught:
            ask(instance, Payload(Kind.TEXT, "x"))
    assert caught.value.headers == (("Retry-After", "1"),)


def test_deadline(tmp_path):
    """A request whose time is up is a 504 where the model had it, and a 503 where it still waited."""
    gate = threading.Event()

    def hold(sock):
        sock.recv(MOST)
        gate.wait(30)

    with Far(tmp_path / "s", hold) as far:
        instance = far.instance()
        asked = Payload(Kind.TEXT, "x", deadline=time.monotonic() + 0.2)
        with pytest.raises(DeadlineExceeded):
            list(instance.infer(asked))
        assert asked.begun
        waiting = Payload(Kind.TEXT, "x", deadline=time.monotonic() + 0.05)
        with pytest.raises(Unavailable, match="before the model was free"):
            list(instance.infer(waiting))
        assert not waiting.begun
        gate.set()


@pytest.mark.parametrize("verb", ["infer", "answer"])
def test_given_up_on_a_loop(tmp_path, verb):
    """A request that is given up on an event loop hangs up, and is told whether the model had begun."""
    heard = []

    def hold(sock):
        sock.recv(MOST)
        heard.append(sock.recv(1))

    with Far(tmp_path / "s", hold) as far:
        asked = Payload(Kind.TEXT, "x")

        async def give_up():
            instance = far.instance()
            waited = instance.answer_async(asked) if verb == "answer" else anext(instance.infer_async(asked))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waited, 0.2)

        asyncio.run(give_up())
        assert asked.begun
        wait_until(lambda: heard == [b""], "the other side to hear it")


def test_was_read():
    """The kernel says whether the other side has read all that was sent."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"xyz")
        assert not was_read(ours)
        theirs.recv(3)
        assert was_read(ours)


@pytest.mark.parametrize("size", [50_000, 3_000_000], ids=["through the socket", "in an arena"])
def test_too_large(ask, size):
    """A request over the process's limit is a 413 that says so, though nobody has read it to its end."""
    with InstanceProcess("remote_models:Worker", more={"max_frame": 10_000}) as process:
        instance = process.serve().instance()
        if size > 100_000:
            instance._arenas._most = 0  # as if all that may be lent were
        with pytest.raises(PayloadTooLarge, match="over the limit of 10000"):
            ask(instance, Payload(Kind.TENSOR, np.zeros(size, np.uint8)))
        with pytest.raises(PayloadTooLarge):
            ask(instance, Payload(Kind.TENSOR, np.zeros(size, np.uint8)))


def test_large_through_the_socket(ask):
    """Large requests and answers go through the socket where no arena is to be had."""
    with InstanceProcess("remote_models:Worker") as process:
        instance = process.serve().instance()
        instance._arenas._most = 0
        array = np.arange(1_000_000)
        (found,) = ask(instance, Payload(Kind.TENSOR, array))
        assert np.array_equal(found, array)
        assert not instance._arenas._kept

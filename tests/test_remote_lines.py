"""Connections between a worker and a model's process that stay from one request to the next."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import numpy as np
import pytest

from far_end import CARD, MOST, STAYING, Far, answer, read, staying, unread
from instance_process import DEADLINE, InstanceProcess
from prefork.errors import PreforkError, Unavailable
from prefork.payload import Kind, Payload
from prefork.remote import RemoteInstance
from prefork.remote.doors import Doors, Wake, room
from prefork.remote.lines import MOST_WAITING, Line, Lines
from prefork.repository.config import Batching, ModelConfig
from running import wait_until

KINDS = {
    "thread": {"class_": "remote_models:Worker"},
    "loop": {"class_": "remote_models:AsyncWorker"},
    "batches": {"class_": "remote_models:Sized", "batching": Batching(max_batch_size=8)},
}


@pytest.fixture(params=KINDS)
def process(request):
    """One that serves on a thread, on an event loop, in batches."""
    with started(**KINDS[request.param]) as found:
        yield found


@contextmanager
def started(**config):
    found = InstanceProcess(**config)
    try:
        yield found.serve()
    finally:
        found.close()


@pytest.fixture
def lines():
    """A worker's connections that wait."""
    return Lines()


def tensor(value):
    return Payload(Kind.TENSOR, np.asarray(value))


def text(value):
    return Payload(Kind.TEXT, value)


async def value(instance, request):
    return (await instance.answer_async(request)).value


async def until(condition):
    """Wait for a condition, as `wait_until`, on the loop."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - as `wait_until`
            await asyncio.sleep(0.01)


# --- from end to end ---


def test_stays(process, lines):
    """After its answer a connection waits for the next request, which needs no way to the process any more."""

    async def ask():
        instance = process.instance(lines=lines)
        assert (await value(instance, tensor([[1.0]]))).tolist() == [[1]]
        assert len(lines) == 1
        os.unlink(process.path)  # noqa: PTH108
        for number in range(5):
            assert (await value(instance, tensor([[number, 2.0]]))).tolist() == [[number, 2]]
            assert len(lines) == 1

    asyncio.run(ask())


def test_large(process, lines):
    """What crosses in shared memory goes over it too, before and after what is small."""

    async def ask():
        instance = process.instance(lines=lines)
        for size in (10, 100_000, 10, 200_000, 10):
            array = np.arange(size, dtype=np.float64).reshape(1, -1)
            assert np.array_equal(await value(instance, tensor(array)), array)
            assert len(lines) == 1

    asyncio.run(ask())


def test_at_once(process, lines):
    """Requests at once have a connection each, and what has stayed of those is used again."""

    async def ask():
        instance = process.instance(lines=lines)
        for _ in range(20):
            found = await asyncio.gather(*(value(instance, tensor([[float(number)]])) for number in range(8)))
            assert [each.tolist() for each in found] == [[[number]] for number in range(8)]
        assert 1 <= len(lines) <= 8

    asyncio.run(ask())


def test_error(lines):
    """After an error the connection ends, and the next request has another one."""

    async def ask(instance):
        await value(instance, text("count_up"))
        with pytest.raises(PreforkError):
            await value(instance, text("nothing_of_the_kind"))
        assert len(lines) == 0
        return await value(instance, text("counted"))

    with started(**KINDS["thread"]) as process:
        assert asyncio.run(ask(process.instance(lines=lines))) == "1"


def test_another_loop(process, lines):
    """A connection belongs to its event loop; on another loop there is a new one."""
    instance = process.instance(lines=lines)
    for _ in range(3):
        assert asyncio.run(value(instance, tensor([[1.0]]))).tolist() == [[1]]
        assert len(lines) == 1


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_given_up(lines, kind):
    """Who gives a request up hangs up, also where the connection had stayed, and the model hears of it."""

    async def ask(instance):
        assert await value(instance, text("released")) == "0"
        assert len(lines) == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(value(instance, text("hold")), 0.3)
        assert len(lines) == 0
        return await value(instance, text("released"))

    with started(**KINDS[kind]) as process:
        assert asyncio.run(ask(process.instance(lines=lines))) == "1"


@pytest.mark.parametrize("whole", [True, False])
def test_drained(process, lines, whole):
    """A process that drains hangs up those that wait, and the worker gives them up without being asked anything."""

    async def ask():
        instance = process.instance(lines=lines)
        await asyncio.gather(*(value(instance, tensor([[1.0]])) for _ in range(4)))
        assert len(lines) >= 1
        process.tell("drain", backlog=whole)
        await until(lambda: len(lines) == 0)

    asyncio.run(ask())
    process.hear("drained")


def test_killed(process, lines):
    """So does the worker where the process is killed."""

    async def ask():
        await value(process.instance(lines=lines), tensor([[1.0]]))
        process.kill()
        await until(lambda: len(lines) == 0)

    asyncio.run(ask())


def test_worker_gone(process):
    """A worker that ends leaves nothing in the process."""

    def count():
        return len(os.listdir(f"/proc/{process.pid}/fd"))  # noqa: PTH208

    async def ask(at_once):
        instance = process.instance(lines=Lines())
        await asyncio.gather(*(value(instance, tensor([[1.0]])) for _ in range(at_once)))
        instance.close()

    asyncio.run(ask(1))
    before = count()
    for _ in range(20):
        asyncio.run(ask(8))
    wait_until(lambda: count() <= before + 4, "the descriptors to come back")  # some are made once


# --- a far end that goes ---


def test_unread(tmp_path, lines):
    """A request that was not read from such a connection is sent again on a new one: no model can have seen it."""

    async def ask():
        instance = far.instance(lines=lines)
        return [await value(instance, text("x")) for _ in range(2)]

    with Far(tmp_path / "s", staying(unread), answer) as far:
        assert asyncio.run(ask()) == ["well", "well"]
    assert far.seen == 2


def test_all_gone(tmp_path, lines):
    """However many of them have gone at once, that is one try out of three."""
    many = 8

    def far(listener):
        socks = [listener.accept()[0] for _ in range(many)]
        for each in socks:
            each.recv(MOST)
        for each in socks:
            each.sendall(STAYING)
        select.select(socks, [], [])  # the next request, which is not read
        for each in socks:
            each.close()
        with listener.accept()[0] as sock:
            answer(sock)

    async def ask(path):
        instance = RemoteInstance(lambda _level: path, CARD, lines=lines)
        await asyncio.gather(*(value(instance, text("x")) for _ in range(many)))
        assert len(lines) == many
        assert await value(instance, text("x")) == "well"

    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor() as threads:
        listener.bind(str(tmp_path / "s"))
        listener.listen(many)
        done = threads.submit(far, listener)
        asyncio.run(ask(str(tmp_path / "s")))
        done.result(DEADLINE)


def test_lost(tmp_path, lines):
    """One that was read is not sent again: a 503 at once."""

    async def ask():
        instance = far.instance(lines=lines)
        await value(instance, text("x"))
        with pytest.raises(Unavailable, match="has lost the process"):
            await value(instance, text("x"))
        assert len(lines) == 0

    with Far(tmp_path / "s", staying(read)) as far:
        asyncio.run(ask())
    assert far.seen == 1


def test_nonsense_meanwhile(tmp_path, lines):
    """What is said on a connection on which nothing is asked ends it."""

    async def ask():
        await value(far.instance(lines=lines), text("x"))
        await until(lambda: len(lines) == 0)

    def babble(sock):
        with suppress(OSError):  # the worker may be faster
            sock.sendall(b"nonsense")
            sock.recv(MOST)

    with Far(tmp_path / "s", staying(babble)) as far:
        asyncio.run(ask())


# --- the doors ---


@contextmanager
def doors_of(tmp_path, space=4, **more):
    """Doors of a listening socket, and what connects to it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(16)
        listener.setblocking(False)
        doors = Doors([listener], room=space, **more)
        clients = []

        def connect():
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(tmp_path / "s"))
            client.setblocking(False)
            clients.append(client)
            return client

        yield doors, connect
        doors.close()
        for each in clients:
            each.close()


def stayed(doors, connect):
    """A client whose connection was taken, and stays."""
    client = connect()
    sock = doors.take(10)
    assert not doors.has_stayed
    assert doors.have_room()
    doors.keep(sock)
    return client


def test_doors_keep(tmp_path):
    """What stays at the doors is taken again when it has a request, each time once."""
    with doors_of(tmp_path) as (doors, connect):
        client = stayed(doors, connect)
        assert doors.take(0) is None
        for number in range(3):
            client.send(b"%d" % number)
            sock = doors.take(10)
            assert doors.has_stayed
            assert sock.recv(10) == b"%d" % number
            assert doors.take(0) is None
            doors.keep(sock)


def test_doors_hung_up(tmp_path):
    """One that hangs up is taken as well, once, whoever else has a hand on it."""
    with doors_of(tmp_path) as (doors, connect):
        client = stayed(doors, connect)
        client.close()
        sock = doors.take(10)
        assert sock.recv(10) == b""
        other = os.dup(sock.fileno())  # as a child has that the model has forked
        sock.close()
        assert not select.select([doors], [], [], 0)[0]
        assert doors.take(0) is None
        os.close(other)


def test_doors_room(tmp_path):
    """No more stay than there is room for."""
    with doors_of(tmp_path, 2) as (doors, connect):
        stayed(doors, connect)
        stayed(doors, connect)
        connect()
        with closing(doors.take(10)):
            assert not doors.have_room()


def test_doors_waiting(tmp_path):
    """None stays while somebody waits outside, or those outside would come after all who are inside."""
    with doors_of(tmp_path) as (doors, connect):
        connect()
        connect().send(b"second")
        with closing(doors.take(10)):
            assert not doors.have_room()
        with closing(doors.take(10)) as second:
            assert second.recv(10) == b"second"
            assert doors.have_room()


def test_doors_in_turn(tmp_path):
    """Who has stayed and who waits outside take turns; and who has stayed does so no longer."""
    with doors_of(tmp_path) as (doors, connect):
        inside = [stayed(doors, connect) for _ in range(3)]
        for each in inside:
            each.send(b"inside")
        for _ in range(4):
            connect().send(b"outside")
        found = []
        for _ in range(7):
            with closing(doors.take(10)) as sock:
                found.append(sock.recv(10))
                assert doors.have_room() == (len(found) == 7)
        assert sorted(found[:4]) == [b"inside"] * 3 + [b"outside"]
        assert found[4:] == [b"outside"] * 3


def test_doors_woken(tmp_path):
    """Once the doors are woken, to be left, nobody stays; what is asked by then is taken."""
    wake = Wake()
    with doors_of(tmp_path, wake=wake.descriptor) as (doors, connect):
        client = stayed(doors, connect)
        client.send(b"asked")
        wake.set()
        with closing(doors.take(10)) as sock:
            assert sock.recv(10) == b"asked"
            assert not doors.have_room()
        assert doors.take(None) is None
    os.close(wake.descriptor)


def test_doors_cleared(tmp_path):
    """Who waits when the doors are left hears that at once, and who has asked hears that it was not read."""
    with doors_of(tmp_path) as (doors, connect):
        idle, asking = stayed(doors, connect), stayed(doors, connect)
        asking.send(b"x")
        doors.clear()
        assert idle.recv(1) == b""
        with pytest.raises(ConnectionResetError):
            asking.recv(1)


@pytest.mark.parametrize(
    ("config", "listeners", "takers", "space"),
    [
        ({}, 1, 1, 16),
        ({"max_queue": 0}, 1, 1, 64),
        ({"max_queue": 100_000}, 1, 1, 64),
        ({"max_queue": 7}, 1, 1, 0),
        ({"devices": ("0",)}, 1, 1, 16),
        ({"devices": ("0", "1")}, 1, 1, 0),
        ({"instances": 2}, 1, 1, 0),
        ({}, 1, 2, 0),
        ({}, 3, 1, 0),
        ({"batching": Batching(max_batch_size=4)}, 1, 1, 16),
        ({"batching": Batching(max_batch_size=4, max_queue=24)}, 1, 1, 3),
    ],
)
def test_room(config, listeners, takers, space):
    """Connections stay where there is one who takes, and no more than an eighth of those that may wait."""
    assert room(ModelConfig(**config), listeners, takers) == space


# --- the worker's ---


def test_most(lines):
    """A worker keeps so many and no more: it closes what was used longest ago, whatever that leads to."""

    async def keep():
        pairs = [socket.socketpair() for _ in range(MOST_WAITING + 3)]
        for number, (ours, _) in enumerate(pairs):
            ours.setblocking(False)
            lines.keep(Line(ours, f"place {number % 5}"))
        assert len(lines) == MOST_WAITING
        assert [theirs.recv(1) for _, theirs in pairs[:3]] == [b""] * 3
        assert lines.take("place 3").sock is pairs[63][0]
        assert lines.take("place 3").sock is pairs[58][0]
        assert lines.take("nowhere") is None
        lines.leave("place 4")
        assert lines.take("place 4") is None
        for ours, theirs in pairs:
            ours.close()
            theirs.close()

    asyncio.run(keep())

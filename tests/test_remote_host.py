"""The model's end: connections of every kind, on threads, on an event loop and in batches."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from instance_process import InstanceProcess
from prefork.errors import BadRequest, ModelFailed, PreforkError, Unavailable
from prefork.frames.codec import decode_answer, decode_error, encode_request
from prefork.frames.layout import ARENA, ERROR, PREFIX, REQUEST, Prefix
from prefork.payload import Kind, Payload
from prefork.remote.doors import Doors, Short, Wake
from prefork.remote.failing import told
from prefork.remote.limits import Limits
from prefork.repository.config import Batching
from running import wait_until

KINDS = {
    "threads": {"class_": "remote_models:Worker"},
    "loop": {"class_": "remote_models:AsyncWorker"},
    "batches": {"class_": "remote_models:Sized", "batching": Batching(max_batch_size=8)},
}


@pytest.fixture(scope="module")
def processes():
    """One of each kind, when it is needed."""
    found = {}
    yield found
    for each in found.values():
        each.close()


@pytest.fixture(params=KINDS)
def process(request, processes):
    """One that serves on a thread, on an event loop, in batches."""
    return started(processes, request.param)


@pytest.fixture
def worker(processes):
    """One that serves on one thread."""
    return started(processes, "threads")


def started(processes, kind):
    if kind not in processes:
        processes[kind] = InstanceProcess(**KINDS[kind]).serve()
    return processes[kind]


def text(value, **more):
    return Payload(Kind.TEXT, value, **more)


def tensor(value):
    return Payload(Kind.TENSOR, np.asarray(value))


def ask(instance, request):
    (found,) = instance.infer(request)
    return found.value


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))  # noqa: PTH208


def said(sock):
    """The frame that comes, and the end behind it."""
    data = b""
    while piece := sock.recv(1 << 16):
        data += piece
    return Prefix.read(data, 1 << 30), data[PREFIX.size :]


# --- requests ---


def test_half_a_request(process):
    """Who sends but half a request, or a byte now and then for ever, holds up nobody for long."""
    data = encode_request(tensor([1.0])).whole()
    stop = threading.Event()

    def trickle():
        with process.connect() as sock:
            try:
                for byte in data * 1000:
                    sock.sendall(bytes([byte]))
                    if stop.wait(0.05):
                        return
            except OSError:
                return

    with process.connect() as half:
        half.sendall(data[:20])
        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert ask(process.instance(), tensor([1.0, 2.0])).tolist() == [1, 2]
            half.settimeout(20)
            try:  # noqa: SIM105
                assert half.recv(1) == b""  # it was cut off
            except ConnectionResetError:
                pass
        finally:
            stop.set()
            thread.join()


def test_nothing(process):
    """Who connects and goes, or says nothing, costs nothing."""
    process.connect().close()
    for _ in range(3):
        assert ask(process.instance(), tensor([1.0])).tolist() == [
            1
        ]  # an event loop opens some of what it needs when it first needs it
    before = descriptors(process)
    for _ in range(5):
        process.connect().close()
    assert ask(process.instance(), tensor([1.0])).tolist() == [1]
    wait_until(lambda: descriptors(process) <= before, "the descriptors to come back")


def test_in_pieces(process):
    """A request that comes in pieces is answered."""
    with process.connect() as sock:
        for byte in encode_request(tensor([3.0])).whole():
            sock.sendall(bytes([byte]))
        prefix, rest = said(sock)
    answer = decode_answer(rest[: prefix.head], memoryview(bytearray(rest[prefix.head :]))).payload
    assert answer.value.tolist() == [3]
    assert answer.cost.queue_ns >= 0
    assert answer.cost.lead


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"nonsense" * 4, "cannot be read: no frame begins with"),
        (PREFIX.pack(REQUEST, 0, 0, 3, 0) + b"abc", "cannot be read: "),
        (PREFIX.pack(2, 0, 0, 3, 0) + b"abc", "cannot be read: this is no request"),
        (PREFIX.pack(REQUEST, ARENA, 0, 1, 64) + b"\x01", "the arena is not there, or too small"),
        (PREFIX.pack(REQUEST, 0, 0, 1, 1 << 60), "too large"),
    ],
    ids=["no frame", "no value", "an answer", "no arena", "too large"],
)
def test_nonsense(process, data, words):
    """Nonsense is answered with an error that says what is wrong, and the next request is answered."""
    with process.connect() as sock:
        sock.sendall(data)
        prefix, rest = said(sock)
    assert prefix.kind == ERROR
    assert words in decode_error(rest).message
    assert ask(process.instance(), tensor([1.0])).tolist() == [1]


def test_descriptor_that_is_no_arena(process):
    """A descriptor that is no memory does not harm."""
    reading, writing = os.pipe()
    with process.connect() as sock:
        socket.send_fds(sock, [encode_request(tensor([1.0])).whole()], [reading])
        assert said(sock)[0].kind == ERROR
    os.close(reading)
    os.close(writing)
    assert ask(process.instance(), tensor([1.0])).tolist() == [1]


def test_late(process):
    """A request whose time was up while it waited is refused and not computed."""
    with process.connect() as sock:
        sock.sendall(encode_request(tensor([-5.0]), time.monotonic() - 2, time.monotonic() - 1).whole())
        prefix, rest = said(sock)
    assert prefix.kind == ERROR
    assert type(decode_error(rest)) is Unavailable


def test_hung_up(worker):
    """A request whose client has gone while it waited is never computed."""
    instance = worker.instance()
    before = int(ask(instance, text("counted")))
    with worker.connect() as holder:
        holder.sendall(encode_request(text("hold"), time.monotonic()).whole())
        with worker.connect() as gone:
            gone.sendall(encode_request(text("count_up"), time.monotonic() - 1).whole())
    assert int(ask(instance, text("counted"))) == before


# --- memory ---


def test_arena_is_used_again(process):
    """Large requests and their answers use the same memory over and over, on both sides."""
    instance = process.instance()
    seen = set()
    for number in range(6):
        found = ask(instance, tensor(np.full(300_000, float(number))))
        assert found[0] == number
        del found
        (arena,) = instance._arenas._kept
        seen.add(id(arena))
    assert len(seen) == 1
    assert arena.size < 3 * 300_000 * 8


def test_arena_after_errors(worker):
    """So they do when the model has raised with the request in its hands."""
    instance = worker.instance()
    for _ in range(3):
        with pytest.raises(PreforkError):
            list(instance.infer(Payload(Kind.TENSOR, np.zeros(300_000), "nothing")))
        assert len(instance._arenas._kept) == 1


def test_large_answers(worker):
    """A small request with a large answer brings an arena along the next time."""
    instance = worker.instance()
    for _ in range(3):
        assert ask(instance, text("large 1000000")).nbytes == 1_000_000
    assert len(instance._arenas._kept) == 1
    assert ask(instance, text("counted"))


def test_memory_of_workers_that_went(worker):
    """What a worker that has gone had shared is unmapped once others need the room, and never more than is allowed is mapped."""
    for _ in range(70):
        instance = worker.instance()
        ask(instance, tensor(np.zeros(10_000)))
        instance.close()
    assert int(ask(worker.instance(), text("mapped"))) <= 2 * 64


# --- what the model does ---


@pytest.mark.parametrize("what", ["raise_base", "interrupt", "allocate 99999999999999"])
def test_errors(worker, what):
    """Whatever the model raises, its client gets an error and the thread goes on."""
    with pytest.raises(ModelFailed):
        ask(worker.instance(), text(what))
    assert ask(worker.instance(), tensor([1.0])).tolist() == [1]


def test_error_is_logged(worker):
    """The traceback of what the model raises is in its own process's log."""
    with pytest.raises(ModelFailed):
        ask(worker.instance(), text("no_such_thing"))
    wait_until(lambda: "no_such_thing" in worker.log.read_text(), "the log")
    assert "AttributeError" in worker.log.read_text()


@pytest.mark.parametrize("class_", ["Trickle", "AsyncTrickle"])
def test_first_part_is_not_kept(class_, tmp_path):
    """The first part of a stream that was not announced is sent before the second is there."""
    with InstanceProcess(f"remote_models:{class_}") as process:
        answers = process.serve().instance().infer(text(str(tmp_path / "gate")))
        assert next(answers).value == "first"
        (tmp_path / "gate").touch()
        assert [answer.value for answer in answers] == ["second"]
        left = process.instance().infer(text(str(tmp_path / "nothing")))
        assert next(left).value == "first"
        left.close()
        if class_ == "AsyncTrickle":
            before = process.instance().infer(text(str(tmp_path / "gate")))
            assert len(list(before)) == 2


def test_children_can_be_ended(worker):
    """A child that the model forks can be terminated, though the process itself does not heed TERM."""
    assert ask(worker.instance(), text("child")) == "-15"
    assert ask(worker.instance(), text("ignored")) == "0,0"


# --- batches ---


def test_batches(processes):
    """Requests that wait together are answered together, each with its own rows; an error of one is not the others'."""
    process = started(processes, "batches")
    instance = process.instance()
    with ThreadPoolExecutor(16) as pool:
        requests = [Payload(Kind.TENSOR, np.full((1, 2), float(number))) for number in range(60)]
        requests[30].value[:] = -1
        found = list(pool.map(lambda request: outcome(instance, request), requests))
    # Each of a failed batch is told of it; nobody else is.
    for number, each in enumerate(found):
        assert each == [[number, number]] or (each == "minus one" and abs(number - 30) <= 16)
    assert found[30] == "minus one"


def outcome(instance, request):
    try:
        return ask(instance, request).tolist()
    except ModelFailed as error:
        return error.message


# --- accepting ---


def listener(tmp_path):
    found = socket.socket(socket.AF_UNIX)
    found.bind(str(tmp_path / "s"))
    found.listen(16)
    found.setblocking(False)
    return found


def test_urgent_first(tmp_path):
    """Of several listening sockets the most urgent one is looked at first."""
    (tmp_path / "b").mkdir()
    with listener(tmp_path) as urgent, listener(tmp_path / "b") as other:
        doors = Doors([urgent, other])
        with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
            first.connect(other.getsockname())
            second.connect(urgent.getsockname())
            second.sendall(b"second")
            found = doors.take(10)
            assert found.recv(10) == b"second"
            found.close()
            doors.take(10).close()
            assert doors.take(0) is None
        doors.close()


def test_wake(tmp_path):
    """Who waits at the doors can be woken for good."""
    with listener(tmp_path) as sock:
        wake = Wake()
        doors = Doors([sock], wake.descriptor)
        wake.set()
        assert doors.take(None) is None
        assert doors.take(None) is None
        doors.close()
        os.close(wake.descriptor)


def test_no_descriptors(tmp_path, caplog):
    """Without descriptors a connection waits until there are some, and the log says it once."""
    caplog.set_level(logging.ERROR, "prefork")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with listener(tmp_path) as sock, socket.socket(socket.AF_UNIX) as client:
        doors = Doors([sock])
        client.connect(sock.getsockname())
        highest = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
        fill = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
            try:
                while True:
                    fill.append(os.dup(0))
            except OSError:
                pass
            for _ in range(3):
                with pytest.raises(Short):
                    doors.take(10)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for each in fill:
                os.close(each)
        doors.take(10).close()
        doors.close()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_lost_door(kind):
    """A process that can accept no more ends, with a line in its log, instead of waiting for nothing."""
    with InstanceProcess(**KINDS[kind]) as process:
        process.serve()
        assert ask(process.instance(), tensor([1.0])).tolist() == [1]
        process.listener.shutdown(socket.SHUT_RDWR)
        assert process.wait() == 70
        assert "this process ends" in process.log.read_text()


# --- errors on their way out ---


def test_memory_limit_is_named():
    """An error for want of memory says how much there may be."""
    error = ModelFailed("Unable to allocate 8 GiB")
    error.__cause__ = MemoryError()
    assert told(error, Limits(0, 5)).message == "Unable to allocate 8 GiB (memory_limit is 5 bytes)"


def test_nothing_of_the_request_is_held():
    """An error that was told holds neither its cause nor its frames, and a cause is logged once."""
    cause = ValueError("x")
    errors = []
    for _ in range(2):
        try:
            raise ModelFailed("x") from cause  # noqa: TRY301
        except ModelFailed as error:
            errors.append(told(error, Limits(0)))
    assert [(each.__cause__, each.__context__, each.__traceback__) for each in errors] == [(None, None, None)] * 2


def test_refusals_are_not_logged(caplog):
    """What the model refuses is no line in the log."""
    told(BadRequest("not like this"), Limits(0))
    assert not caplog.records


def test_loop_at_once(processes):
    """An asynchronous model is asked by many at once on one loop."""
    process = started(processes, "loop")

    async def many():
        instance = process.instance()

        async def one(number):
            return [answer.value[0] async for answer in instance.infer_async(tensor([float(number)]))]

        return await asyncio.gather(*map(one, range(50)))

    assert asyncio.run(many()) == [[float(number)] for number in range(50)]

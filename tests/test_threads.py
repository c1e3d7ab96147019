from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from prefork.http import Response
from prefork.threads import Job, ModelThreads


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def test_one_thread_never_runs_two_jobs_at_once():
    """With one model thread a model is never called twice at the same time."""
    inside = 0
    most = 0

    def job() -> Response:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.001)
        inside -= 1
        return Response(b"x")

    async def main():
        threads = ModelThreads(1)
        await asyncio.gather(*(threads.run(Job(job)) for _ in range(50)))
        threads.close()

    run(main())
    assert most == 1


def test_threads_run_side_by_side():
    """With N threads N jobs run at once: here they wait for each other."""
    barrier = threading.Barrier(4, timeout=10)

    def job() -> Response:
        barrier.wait()
        return Response(b"met")

    async def main():
        threads = ModelThreads(4)
        answers = await asyncio.gather(*(threads.run(Job(job)) for _ in range(4)))
        threads.close()
        return answers

    assert [answer.body for answer in run(main())] == [[b"met"]] * 4


def test_loop_goes_on_while_the_model_computes():
    """The event loop answers others while a job holds its thread."""
    release = threading.Event()

    def job() -> Response:
        assert release.wait(10)
        return Response(b"done")

    async def main():
        threads = ModelThreads(1)
        waiting = threads.run(Job(job))
        await asyncio.sleep(0)
        assert not waiting.done()
        release.set()
        response = await waiting
        threads.close()
        return response

    assert run(main()).body == [b"done"]


def test_cancelled_job_in_the_queue_is_never_run():
    """A job whose caller left while it waited is not computed."""
    ran: list[str] = []
    release = threading.Event()

    def first() -> Response:
        assert release.wait(10)
        return Response()

    def second() -> Response:
        ran.append("second")
        return Response()

    async def main():
        threads = ModelThreads(1)
        left = Job(second)
        one, two = threads.run(Job(first)), threads.run(left)
        assert threads.waiting == 1
        threads.abandon(left)
        assert not left.was_begun
        assert threads.waiting == 0
        assert await two is None
        release.set()
        await one
        await threads.run(Job(Response))
        threads.close()

    run(main())
    assert ran == []


def stream_of(parts: Iterator[bytes]):
    def job() -> Response:
        return Response(stream=parts)

    return job


def test_stream_is_driven_by_the_thread_that_began_it():
    """All parts of a stream are made on one thread, whichever it is: frameworks keep state there."""

    def parts(begun: int):
        for _ in range(40):
            assert threading.get_ident() == begun
            yield b"part"

    def job() -> Response:
        return Response(stream=parts(threading.get_ident()))

    async def main():
        threads = ModelThreads(3)
        response = await threads.run(Job(job))
        got = [part async for part in response.stream]
        threads.close()
        return got

    assert run(main()) == [b"part"] * 40


def test_slow_reader_holds_the_model_back():
    """A stream is made only a few parts ahead of its reader."""
    made: list[int] = []

    def parts():
        for number in range(1000):
            made.append(number)
            yield b"x"

    async def main():
        threads = ModelThreads(1)
        response = await threads.run(Job(stream_of(parts())))
        await anext(response.stream)
        ahead = len(made)
        await response.stream.aclose()
        threads.close()
        return ahead

    assert run(main()) <= 40


@pytest.mark.parametrize("read", [0, 3])
def test_closing_a_stream_closes_the_generator(read: int):
    """When the reader leaves, the user's generator is closed, and the thread is free again."""
    closed = threading.Event()

    def parts():
        try:
            while True:
                yield b"x"
        finally:
            closed.set()

    async def main():
        threads = ModelThreads(1)
        response = await threads.run(Job(stream_of(parts())))
        for _ in range(read):
            await anext(response.stream)
        await response.stream.aclose()
        again = await threads.run(Job(lambda: Response(b"free")))
        threads.close()
        return again

    assert run(main()).body == [b"free"]
    assert closed.is_set()

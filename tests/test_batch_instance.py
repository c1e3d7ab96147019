"""BatchingInstance: a real model behind real threads and event loops, asked by many at once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from prefork.batch import BatchingInstance
from prefork.errors import ModelFailed, PreforkError, Unavailable
from prefork.instance import LocalInstance
from prefork.model import Model
from prefork.model.reschedule import Reschedule
from prefork.payload import Kind, Payload
from prefork.repository.config import Batching, LevelQueue

Make = Callable[..., BatchingInstance]


@pytest.fixture
def batching() -> Iterator[Make]:
    """Makes an instance of a user's object; it is closed at the end."""
    made: list[BatchingInstance] = []

    def make(user_object: Any, size: int = 16, threads: int = 1, stuck_after: float = 0.0, **rules: Any):
        inner = LocalInstance(Model(user_object, "m"))
        made.append(BatchingInstance(inner, Batching(max_batch_size=size, **rules), threads, stuck_after=stuck_after))
        return made[-1]

    yield make
    for instance in made:
        instance.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as found:
        yield found


def request(*values: float, **more: Any) -> Payload:
    return Payload(Kind.TENSOR, np.array(values or (0.0,)), **more)


def ask(instance: BatchingInstance, payload: Payload) -> Any:
    """The answers, from this thread."""
    return [answer.value.tolist() for answer in instance.infer(payload)]


async def ask_async(instance: BatchingInstance, payload: Payload) -> Any:
    return [answer.value.tolist() async for answer in instance.infer_async(payload)]


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 20))


async def soon(condition: Callable[[], bool]) -> None:
    """Until it holds; whoever runs this has a deadline."""
    while not condition():  # noqa: ASYNC110 - others than this loop make it true
        await asyncio.sleep(0.001)


class Doubles:
    """Keeps what it was asked. Its first call lasts until `go_on`; `begun` counts the calls that have begun."""

    def __init__(self, *, waits: bool = True) -> None:
        self.calls: list[list[float]] = []
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        if not waits:
            self.go_on.set()

    def predict(self, X, names):
        self.calls.append(X.tolist())
        self.begun.release()
        assert self.go_on.wait(20)
        return X * 2

    async def has_begun(self) -> None:
        await soon(lambda: bool(self.calls))


def all_waiting(instance: BatchingInstance, count: int) -> bool:
    return instance.waiting == count


# --- batches -----------------------------------------------------------------------------------------------------


def test_parallel_requests_are_one_stacked_array(batching: Make):
    """Seventeen requests at once make two calls: the first one's, and one of sixteen rows, whose answers are each one's own."""
    model = Doubles()
    instance = batching(model)

    async def main():
        first = asyncio.ensure_future(ask_async(instance, request(0.0)))
        await model.has_begun()
        rest = [asyncio.ensure_future(ask_async(instance, request(float(at)))) for at in range(1, 17)]
        await soon(lambda: all_waiting(instance, 16))
        model.go_on.set()
        return await asyncio.gather(first, *rest)

    assert run(main()) == [[[2.0 * at]] for at in range(17)]
    assert model.calls == [[0.0], [float(at) for at in range(1, 17)]]


def test_threads_are_batched_too(batching: Make, pool: ThreadPoolExecutor):
    """Requests from threads of the caller's wait for the same batches."""
    model = Doubles()
    instance = batching(model)
    first = pool.submit(ask, instance, request(0.0))
    assert model.begun.acquire(timeout=20)
    rest = [pool.submit(ask, instance, request(float(at))) for at in range(1, 17)]
    run(soon(lambda: all_waiting(instance, 16)))
    model.go_on.set()
    assert [future.result(20) for future in [first, *rest]] == [[[2.0 * at]] for at in range(17)]
    assert [len(call) for call in model.calls] == [1, 16]


def test_many_threads_and_a_loop_at_once(batching: Make, pool: ThreadPoolExecutor):
    """Whoever asks from wherever, with two model threads: everybody gets his own answer, and batches were made."""
    model = Doubles(waits=False)
    instance = batching(model, threads=2, max_batch_delay=2000)

    def several(start: int) -> list[Any]:
        return [ask(instance, request(float(at))) for at in range(start, start + 20)]

    async def on_loop():
        return await asyncio.gather(*(ask_async(instance, request(float(at))) for at in range(1000, 1100)))

    futures = [pool.submit(several, 20 * at) for at in range(8)]
    assert run(on_loop()) == [[[2.0 * at]] for at in range(1000, 1100)]
    found = [answer for future in futures for answer in future.result(20)]
    assert found == [[[2.0 * at]] for at in range(160)]
    assert sum(map(len, model.calls)) == 260
    assert max(map(len, model.calls)) <= 16
    assert len(model.calls) < 260


def test_never_more_calls_than_threads(batching: Make, pool: ThreadPoolExecutor):
    """With one thread the model is never called twice at once, by whatever method."""
    inside, most = [], []

    class Counts:
        def predict(self, X, names):
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            return X

        transform_input = predict

    instance = batching(Counts(), size=2)
    methods = ["predict", "transform_input"] * 40
    list(pool.map(lambda method: ask(instance, request(1.0, method=method)), methods))
    assert set(most) == {1}


def test_two_threads_call_side_by_side(batching: Make, pool: ThreadPoolExecutor):
    """With two threads two batches are executed at once: here they wait for each other."""
    both = threading.Barrier(2, timeout=20)

    class Meets:
        def predict(self, X, names):
            both.wait()
            return X

    instance = batching(Meets(), size=1, threads=2)
    assert list(pool.map(lambda at: ask(instance, request(at)), [1.0, 2.0])) == [[[1.0]], [[2.0]]]


def test_other_methods_pass_through(batching: Make):
    """What is no prediction is answered by the model as without batching."""

    class Routes:
        def predict(self, X, names):
            return X

        def route(self, X, names):
            return 1

        def health_status(self):
            return "well"

    instance = batching(Routes())
    assert ask(instance, request(method="route")) == [[[1]]]
    (health,) = instance.infer(Payload(Kind.JSON, None, "health_status"))
    assert health.value == "well"


def test_an_async_model_is_batched(batching: Make):
    """`async def predict` is awaited on the model's own loop, with the batch as its X."""

    class Later:
        calls = 0

        async def predict(self, X, names):
            await asyncio.sleep(0)
            Later.calls += 1
            return X * 2

    instance = batching(Later(), size=8, max_batch_delay=10_000_000)

    async def main():
        return await asyncio.gather(*(ask_async(instance, request(float(at))) for at in range(8)))

    assert run(main()) == [[[2.0 * at]] for at in range(8)]
    assert Later.calls == 1


def test_it_is_asked_on_the_loop(batching: Make):
    """It says that it is asynchronous, so that requests that wait for a batch occupy no thread of the server's."""
    instance = batching(Doubles())
    assert instance.is_async
    assert instance.spec.name == "m"
    assert instance.ready()


# --- errors ------------------------------------------------------------------------------------------------------


class Picky:
    def predict(self, X, names):
        if (X < 0).any():
            raise ValueError("negative")
        return X


def test_a_bad_request_fails_alone(batching: Make):
    """With `retry_alone` the mates of a request that makes the model raise get their answers."""
    instance = batching(Picky(), size=4, retry_alone=True, max_batch_delay=10_000_000)

    async def main():
        asked = (ask_async(instance, request(value)) for value in (1.0, -1.0, 2.0, 3.0))
        return await asyncio.gather(*asked, return_exceptions=True)

    one, bad, *rest = run(main())
    assert [one, *rest] == [[[1.0]], [[2.0]], [[3.0]]]
    assert isinstance(bad, ModelFailed)
    assert bad.message == "negative"


def test_a_handed_back_request_is_finished(batching: Make):
    """A request that the model hands back is answered with its state, from a thread and on a loop."""

    class Twice:
        def predict(self, X, names, state=None):
            if state is None:
                raise Reschedule(10.0)
            return X + state

    instance = batching(Twice())
    assert ask(instance, request(1.0)) == [[11.0]]
    assert run(ask_async(instance, request(2.0))) == [[12.0]]


# --- the queue ---------------------------------------------------------------------------------------------------


def refusal(future: Future[Any]) -> tuple[str, int, Any]:
    error = future.exception(20)
    assert isinstance(error, PreforkError)
    return error.message, error.status, error.headers


EXPIRED = ("Request timeout expired", 503, (("Retry-After", "1"),))
FULL = ("Exceeds maximum queue size", 503, (("Retry-After", "1"),))


def test_who_waits_too_long_is_told_while_the_model_is_busy(batching: Make, pool: ThreadPoolExecutor):
    """A queued request times out with a 503 although the model has not come back, from a thread and on a loop."""
    model = Doubles()
    instance = batching(model, size=1, queue_timeout=30_000_000)
    first = pool.submit(ask, instance, request(0.0))
    assert model.begun.acquire(timeout=20)
    hurried = {"timeout": 10_000}
    assert refusal(pool.submit(ask, instance, request(1.0, parameters=hurried))) == EXPIRED
    with pytest.raises(Unavailable, match="Request timeout expired"):
        run(ask_async(instance, request(2.0, parameters=hurried)))
    assert not first.done()
    assert instance.waiting == 0
    model.go_on.set()
    assert first.result(20) == [[0.0]]
    assert model.calls == [[0.0]]


def test_a_request_that_runs_does_not_time_out(batching: Make, pool: ThreadPoolExecutor):
    """The time in the queue is over once a batch has begun; how long that takes is not the queue's business."""
    model = Doubles()
    instance = batching(model, size=1, queue_timeout=1_000_000)
    first = pool.submit(ask, instance, request(1.0))
    assert model.begun.acquire(timeout=20)
    assert refusal(pool.submit(ask, instance, request(2.0))) == EXPIRED  # as old as the first is by then
    model.go_on.set()
    assert first.result(20) == [[2.0]]


def test_a_full_queue_refuses_at_once(batching: Make, pool: ThreadPoolExecutor):
    """With `max_queue` requests waiting behind a busy model the next one is refused, from a thread and on a loop."""
    model = Doubles()
    instance = batching(model, max_queue=2)
    futures = [pool.submit(ask, instance, request(0.0))]
    assert model.begun.acquire(timeout=20)
    futures += [pool.submit(ask, instance, request(value)) for value in (1.0, 2.0)]
    run(soon(lambda: all_waiting(instance, 2)))
    assert refusal(pool.submit(ask, instance, request(3.0))) == FULL
    with pytest.raises(Unavailable, match="Exceeds maximum queue size"):
        run(ask_async(instance, request(4.0)))
    model.go_on.set()
    assert [future.result(20) for future in futures] == [[[0.0]], [[2.0]], [[4.0]]]


def test_a_level_has_a_queue_of_its_own(batching: Make, pool: ThreadPoolExecutor):
    """`priority_queues` bounds a level apart from the others, which share `max_queue`, and says how long its requests wait."""
    model = Doubles()
    own = {1: LevelQueue(max_queue=1), 2: LevelQueue(queue_timeout=1)}
    instance = batching(model, size=1, max_queue=1, priority_levels=3, priority_queues=own)
    futures = [pool.submit(ask, instance, request(0.0))]
    assert model.begun.acquire(timeout=20)
    futures += [pool.submit(ask, instance, request(float(level), parameters={"priority": level})) for level in (3, 1)]
    run(soon(lambda: all_waiting(instance, 2)))
    for level in (1, 3):
        assert refusal(pool.submit(ask, instance, request(9.0, parameters={"priority": level}))) == FULL
    assert refusal(pool.submit(ask, instance, request(9.0, parameters={"priority": 2}))) == EXPIRED
    model.go_on.set()
    assert [future.result(20) for future in futures] == [[[0.0]], [[6.0]], [[2.0]]]
    assert model.calls == [[0.0], [1.0], [3.0]]


def test_what_a_free_thread_takes_is_no_queue(batching: Make):
    """While the model is free a burst of one batch is taken, however short the queue may be."""
    model = Doubles(waits=False)
    instance = batching(model, size=8, max_queue=1, max_batch_delay=10_000_000)

    async def main():
        return await asyncio.gather(*(ask_async(instance, request(float(at))) for at in range(8)))

    assert run(main()) == [[[2.0 * at]] for at in range(8)]
    assert len(model.calls) == 1


def test_delayed_requests_wait_behind_fresh_ones(batching: Make, pool: ThreadPoolExecutor):
    """With `timeout_action: delay` nobody is refused, and who has waited too long goes behind who has not."""
    model = Doubles()
    instance = batching(model, size=1, queue_timeout=30_000_000, timeout_action="delay")
    futures = [pool.submit(ask, instance, request(0.0))]
    assert model.begun.acquire(timeout=20)
    for value, parameters in ((1.0, {"timeout": 1}), (2.0, None)):
        futures.append(pool.submit(ask, instance, request(value, parameters=parameters)))
        run(soon(lambda: all_waiting(instance, len(futures) - 1)))
    model.go_on.set()
    assert [future.result(20) for future in futures] == [[[0.0]], [[2.0]], [[4.0]]]
    assert model.calls == [[0.0], [2.0], [1.0]]


def test_urgent_requests_pass_the_others(batching: Make, pool: ThreadPoolExecutor):
    """A request of priority 1 passes those of lower levels that came before."""
    model = Doubles()
    instance = batching(model, size=1, priority_levels=3, default_priority=2)
    futures = [pool.submit(ask, instance, request(0.0))]
    assert model.begun.acquire(timeout=20)
    for value, level in ((1.0, 3), (2.0, 0), (3.0, 1)):
        futures.append(pool.submit(ask, instance, request(value, parameters={"priority": level})))
        run(soon(lambda: all_waiting(instance, len(futures) - 1)))
    model.go_on.set()
    for future in futures:
        future.result(20)
    assert model.calls == [[0.0], [3.0], [2.0], [1.0]]


def test_who_leaves_the_queue_is_never_executed(batching: Make, pool: ThreadPoolExecutor):
    """A task that is cancelled, or a caller whose client has gone, takes its request out of the queue."""
    model = Doubles()
    instance = batching(model, size=1)
    first = pool.submit(ask, instance, request(0.0))
    assert model.begun.acquire(timeout=20)
    gone = pool.submit(ask, instance, request(1.0, cancelled=lambda: True))

    async def main():
        task = asyncio.ensure_future(ask_async(instance, request(2.0)))
        await soon(lambda: all_waiting(instance, 2))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert instance.waiting == 1
    model.go_on.set()
    assert first.result(20) == [[0.0]]
    assert refusal(gone) == EXPIRED
    assert model.calls == [[0.0]]


# --- streams -----------------------------------------------------------------------------------------------------


class Counts:
    """Streams for ever, and keeps how far it came."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = threading.Event()

    def predict(self, X, names):
        try:
            while True:
                self.sent += 1
                yield X * self.sent
        finally:
            self.ended.set()


def test_a_stream_is_not_far_ahead_of_its_reader(batching: Make):
    """The parts come as they are made, the model is held back for a slow reader, and closing ends its generator."""
    model = Counts()
    answers = batching(model).infer(request(1.0))
    assert [next(answers).value.tolist() for _ in range(3)] == [[1.0], [2.0], [3.0]]
    answers.close()
    assert model.ended.wait(20)
    assert model.sent < 30


def test_a_stream_on_a_loop(batching: Make):
    """As from a thread: parts as they come, and the generator ends when the reader leaves."""
    model = Counts()
    instance = batching(model)

    async def main():
        answers = instance.infer_async(request(1.0))
        found = [(await anext(answers)).value.tolist() for _ in range(40)]
        await answers.aclose()
        return found

    assert run(main()) == [[float(at)] for at in range(1, 41)]
    assert model.ended.wait(20)
    assert model.sent < 70


# --- the end -----------------------------------------------------------------------------------------------------


def test_closing_answers_what_waits(batching: Make, pool: ThreadPoolExecutor):
    """`close` waits for the requests that were accepted, then unloads the model; later ones are refused."""
    closed: list[int] = []

    class Closes(Doubles):
        def close(self):
            closed.append(len(self.calls))

    model = Closes()
    instance = batching(model, size=1, max_batch_delay=30_000_000)
    futures = [pool.submit(ask, instance, request(0.0))]
    assert model.begun.acquire(timeout=20)
    futures.append(pool.submit(ask, instance, request(1.0)))
    run(soon(lambda: all_waiting(instance, 1)))
    closing = pool.submit(instance.close)
    run(soon(lambda: not instance.ready()))
    assert refusal(pool.submit(ask, instance, request(2.0)))[1] == 503
    assert closed == []
    model.go_on.set()
    closing.result(20)
    assert [future.result(20) for future in futures] == [[[0.0]], [[2.0]]]
    assert closed == [2]


def test_closing_does_not_wait_for_company(batching: Make, pool: ThreadPoolExecutor):
    """What waits for its batch to fill when the model is unloaded is executed at once."""
    instance = batching(Doubles(waits=False), max_batch_delay=3_600_000_000)
    future = pool.submit(ask, instance, request(1.0))
    run(soon(lambda: all_waiting(instance, 1)))
    instance.close()
    assert future.result(20) == [[2.0]]


def test_a_model_that_does_not_come_back_is_reported(batching: Make):
    """When a running request is given up and its batch is still not over after `stuck_after`, the server is told."""
    model = Doubles()
    instance = batching(model, stuck_after=0.01)
    reports: list[bool] = []
    instance.report = lambda: reports.append(True)

    async def main():
        task = asyncio.ensure_future(ask_async(instance, request(0.0)))
        await model.has_begun()
        task.cancel()
        await soon(lambda: bool(reports))
        model.go_on.set()

    run(main())
    assert reports == [True]


def test_a_loop_that_is_closed_costs_nobody_else(batching: Make, caplog: pytest.LogCaptureFixture):
    """The answer to a loop that has gone is dropped; the model thread goes on."""
    model = Doubles()
    instance = batching(model)

    async def leaves():
        instance_answers = instance.infer_async(request(0.0))
        task = asyncio.ensure_future(anext(instance_answers))
        await model.has_begun()
        task.cancel()

    with caplog.at_level(logging.ERROR, "prefork"):
        run(leaves())
        model.go_on.set()
        assert ask(instance, request(1.0)) == [[2.0]]
    assert caplog.text == ""

"""The batch loop, as histories on a clock that only the model and the intake move; then with real threads."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.batch import Ask, Batcher, Terms, run
from prefork.batch.intake import Queue
from prefork.errors import BadRequest, ModelFailed, Unavailable
from prefork.instance import LocalInstance
from prefork.model import Model
from prefork.model.reschedule import Reschedule
from prefork.payload import Kind, Payload
from prefork.repository.config import Batching
from scripted_intake import Clock, Kept, Scripted

INF = math.inf
EXPIRED = "Request timeout expired"


class Doubles:
    """A model that takes `cost` seconds a call, keeps what it was asked, and doubles it."""

    def __init__(self, clock: Clock, cost: float = 1.0):
        self.clock = clock
        self.cost = cost
        self.calls: list[list[Any]] = []
        self.begun: list[float] = []

    def predict(self, X, names):
        self.calls.append(X.tolist())
        self.begun.append(self.clock.now)
        self.clock.now += self.cost
        return X * 2


class History:
    """What came of some requests, of which each is (when, rows) and more of what `request` takes."""

    def __init__(self, model: Any, clock: Clock, rules: Batching, *asked: Ask) -> None:
        self.model = model
        self.clock = clock
        self.replies = [ask.reply for ask in asked]
        self.intake = Scripted(clock, asked)
        Batcher(self.intake, local(model), rules, clock=clock).run()

    def values(self) -> list[Any]:
        """Each request's answer, or the text of its error."""
        found: list[Any] = []
        for reply in self.replies:
            assert isinstance(reply, Kept)
            assert reply.is_over
            found.append(reply.answers[0].value.tolist() if reply.error is None else reply.error.message)
        return found


def local(user_object: Any) -> LocalInstance:
    return LocalInstance(Model(user_object, "m"))


class Asking:
    """Makes requests whose rows are numbered 0, 1, 2, ... over all of them."""

    def __init__(self, clock: Clock, rules: Batching) -> None:
        self.clock = clock
        self.rules = rules
        self.rows = 0
        self.spec = local(Doubles(clock)).spec

    def __call__(
        self, when: float, rows: int = 1, *, gone: float = INF, deadline: float = INF, dtype: str = "i8", **more: Any
    ) -> Ask:
        value = np.arange(self.rows, self.rows + rows, dtype=dtype)
        self.rows += rows
        terms = Terms(self.rules, self.spec)
        reply = Kept(self.clock, gone)
        return terms.ask(Payload(Kind.TENSOR, value, **more), reply, arrived=when, deadline=deadline)


def begin(**rules: Any) -> tuple[Clock, Batching, Asking]:
    clock = Clock()
    policy = Batching(**({"max_batch_size": 4} | rules))
    return clock, policy, Asking(clock, policy)


# --- histories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "arrivals", "calls", "begun"),
    [
        # One call a second; what has come meanwhile is the next batch.
        ({}, [0.0, 0.1, 0.2, 0.3], [[0], [1, 2, 3]], [0.0, 1.0]),
        ({}, [0.0] * 6, [[0, 1, 2, 3], [4, 5]], [0.0, 1.0]),
        # Company is waited for, up to the delay of the first, or until the batch is full.
        ({"max_batch_delay": 500_000}, [0.0, 0.4, 0.6], [[0, 1], [2]], [0.5, 1.5]),
        ({"max_batch_delay": 500_000}, [0.0, 0.1, 0.2, 0.3, 5.0], [[0, 1, 2, 3], [4]], [0.3, 5.0]),
        # Who has waited behind a call has waited enough.
        ({"max_batch_delay": 500_000}, [0.0, 0.6, 9.0], [[0], [1], [2]], [0.5, 1.5, 9.0]),
        ({"preferred_batch_sizes": (2,), "max_batch_delay": 500_000}, [0.0, 0.1, 0.2], [[0, 1], [2]], [0.1, 1.1]),
    ],
)
def test_when_batches_begin(rules, arrivals, calls, begun):
    """A batch begins when it is full, of a preferred size, or its first request has waited long enough and the model is free."""
    clock, policy, ask = begin(**rules)
    model = Doubles(clock)
    history = History(model, clock, policy, *map(ask, arrivals))
    assert model.calls == calls
    assert model.begun == pytest.approx(begun)
    assert history.values() == [[2 * at] for at in range(len(arrivals))]


def test_requests_are_never_split():
    """Rows are counted, whole requests are put together, and one over the limit runs alone."""
    clock, policy, ask = begin()
    model = Doubles(clock)
    history = History(model, clock, policy, *(ask(0.0, rows) for rows in (3, 2, 2, 6, 1)))
    assert model.calls == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10, 11, 12], [13]]
    assert history.values()[2] == [10, 12]


def test_those_that_do_not_fit_are_held_for_the_next_batch():
    """A request of another dtype that was taken with the others is the first of the next batch."""
    clock, policy, ask = begin()
    model = Doubles(clock)
    History(model, clock, policy, ask(0.0), ask(0.0, dtype="f4"), ask(0.0), ask(0.0, dtype="f4"))
    assert model.calls == [[0, 2], [1.0, 3.0]]


def test_no_more_is_taken_than_one_batch_holds():
    """While the model computes, what one batch cannot hold stays in the intake, for whoever else takes from it."""
    clock, policy, ask = begin()
    left: list[int] = []

    class Looks(Doubles):
        def predict(self, X, names):
            left.append(len(history.given))
            return super().predict(X, names)

    asks = [ask(0.0) for _ in range(9)]
    history = Scripted(clock, asks)
    Batcher(history, local(Looks(clock)), policy, clock=clock).run()
    assert left == [4, 8, 9]


def test_urgent_requests_pass_the_others():
    """Who comes later with priority 1 is executed before those of lower levels that wait."""
    clock, policy, ask = begin(max_batch_size=1, priority_levels=2)
    model = Doubles(clock)
    History(model, clock, policy, ask(0.0), ask(0.1), ask(0.2), ask(0.3, parameters={"priority": 1}))
    assert model.calls == [[0], [3], [1], [2]]


def test_late_requests_are_refused():
    """A request whose time in the queue, its own or the policy's, is up is told so with a 503 and never executed."""
    clock, policy, ask = begin(max_batch_size=1, queue_timeout=1_500_000)
    model = Doubles(clock)
    history = History(model, clock, policy, ask(0.0), ask(0.0), ask(0.0), ask(0.0, parameters={"timeout": 500_000}))
    assert history.values() == [[0], [2], EXPIRED, EXPIRED]
    assert model.calls == [[0], [1]]
    error = history.replies[2].error
    assert isinstance(error, Unavailable)
    assert (error.status, error.headers) == (503, (("Retry-After", "1"),))


def test_a_deadline_is_kept_in_the_queue_too():
    """A request whose whole time is up is refused, also where the policy itself would only put it behind."""
    clock, policy, ask = begin(max_batch_size=1, queue_timeout=500_000, timeout_action="delay")
    model = Doubles(clock)
    history = History(model, clock, policy, ask(0.0), ask(0.0, deadline=0.9), ask(0.0))
    assert history.values() == [[0], EXPIRED, [4]]


def test_delayed_requests_go_behind():
    """With `timeout_action: delay` one whose time is up is executed behind a later one whose is not."""
    clock, policy, ask = begin(max_batch_size=2, queue_timeout=500_000, timeout_action="delay")
    model = Doubles(clock)
    History(model, clock, policy, ask(0.0), ask(0.0, dtype="f4"), ask(0.9))
    assert model.calls == [[0], [2], [1.0]]


def test_who_has_gone_is_not_executed():
    """A request whose client has hung up by the time its batch begins is left out of it, and is over."""
    clock, policy, ask = begin()
    model = Doubles(clock)
    history = History(model, clock, policy, ask(0.0), ask(0.1, gone=0.5), ask(0.2))
    assert model.calls == [[0], [2]]
    assert history.values() == [[0], EXPIRED, [4]]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.2, 0.9, 2.0, 5.0]),
            st.integers(1, 6),
            st.sampled_from(["i8", "f4"]),
            st.sampled_from([0, 1, 2]),
            st.sampled_from([INF, 1.5]),
        ),
        max_size=20,
    ),
    st.integers(1, 6),
    st.sampled_from([0, 300_000]),
    st.sampled_from([(), (2, 4)]),
)
def test_any_history(requests, size, delay, preferred):
    """Whoever comes when: each is answered exactly once and rightly, no batch is over the limit, none is split, and within a
    level and key the earlier is not executed after the later.
    """
    clock, policy, ask = begin(
        max_batch_size=size, max_batch_delay=delay, preferred_batch_sizes=preferred, priority_levels=2
    )
    model = Doubles(clock)
    asks = [
        ask(when, rows, dtype=dtype, gone=gone, parameters={"priority": level})
        for when, rows, dtype, level, gone in requests
    ]
    values = History(model, clock, policy, *asks).values()
    place = {row: at for at, call in enumerate(model.calls) for row in call}
    assert sum(map(len, model.calls)) == len(place)
    begun: dict[tuple[Any, ...], list[int]] = {}
    for one in sorted(asks, key=lambda one: one.arrived):
        rows = one.payload.value.tolist()
        value = values[asks.index(one)]
        assert value == [2 * row for row in rows] if value != EXPIRED else rows[0] not in place
        if value != EXPIRED:
            assert len({place[row] for row in rows}) == 1
            begun.setdefault((one.level, one.payload.value.dtype.str), []).append(place[rows[0]])
    assert all(order == sorted(order) for order in begun.values())
    assert all(len(call) <= size or is_one(call, asks) for call in model.calls)


def is_one(call: list[Any], asks: list[Ask]) -> bool:
    return any(ask.payload.value.tolist() == call for ask in asks)


# --- errors ------------------------------------------------------------------------------------------------------


class Refuses(Doubles):
    """Fails for every call that has the row 1."""

    error: Exception = ValueError("no ones")

    def predict(self, X, names):
        super().predict(X, names)
        if 1 in X:
            raise self.error
        return X * 2


def test_an_exception_is_everybodys():
    """Without `retry_alone` an exception of a merged call goes to all of its requests, to each as an error of its own."""
    clock, policy, ask = begin()
    model = Refuses(clock)
    history = History(model, clock, policy, ask(0.0), ask(0.0), ask(0.0))
    assert history.values() == ["no ones"] * 3
    assert model.calls == [[0, 1, 2]]
    errors = [reply.error for reply in history.replies]
    assert all(type(error) is ModelFailed and isinstance(error.__cause__, ValueError) for error in errors)
    assert len({id(error) for error in errors}) == 3


def test_each_is_tried_alone():
    """With `retry_alone` each request of a merged call that raised is tried alone, once, so that only the bad one fails."""
    clock, policy, ask = begin(retry_alone=True)
    model = Refuses(clock)
    history = History(model, clock, policy, ask(0.0), ask(0.0), ask(0.0))
    assert history.values() == [[0], "no ones", [4]]
    assert model.calls == [[0, 1, 2], [0], [1], [2]]


def test_one_whose_client_left_meanwhile_is_not_tried():
    """Who has hung up while the merged call failed is not tried alone."""
    clock, policy, ask = begin(retry_alone=True)
    model = Refuses(clock)
    history = History(model, clock, policy, ask(0.0, gone=0.5), ask(0.0), ask(0.0))
    assert history.values() == [EXPIRED, "no ones", [4]]
    assert model.calls == [[0, 1, 2], [1], [2]]


def test_a_refusal_is_nobody_elses():
    """An error below 500 says that a request is wrong, so each is tried alone, whatever the policy."""
    clock, policy, ask = begin()
    model = Refuses(clock)
    model.error = BadRequest("no ones")
    history = History(model, clock, policy, ask(0.0), ask(0.0))
    assert history.values() == [[0], "no ones"]
    assert history.replies[1].error.status == 400


class Sums(Doubles):
    def predict(self, X, names):
        super().predict(X, names)
        return X.sum(keepdims=True)


def test_an_answer_with_other_rows_fails_the_merged_call():
    """A model that does not answer row for row is told so; alone it is asked as ever."""
    clock, policy, ask = begin()
    values = History(Sums(clock), clock, policy, ask(0.0), ask(0.0)).values()
    assert values[0] == values[1]
    assert "the shape [1] to a batch of 2 rows" in values[0]
    clock, policy, ask = begin(retry_alone=True)
    assert History(Sums(clock), clock, policy, ask(0.0), ask(0.0)).values() == [[0], [1]]


class Streams(Doubles):
    def predict(self, X, names):
        yield X
        self.clock.now += 1
        yield X * 2


class StreamsInDisguise(Doubles):
    def predict(self, X, names):
        return Streams(self.clock).predict(X, names)


@pytest.mark.parametrize("cls", [Streams, StreamsInDisguise])
def test_streams_pass_through(cls):
    """The parts of a stream go out one by one; a stream that nobody could foresee costs a batch its first try."""
    clock, policy, ask = begin(retry_alone=True)
    ask.spec = local(cls(clock)).spec
    history = History(cls(clock), clock, policy, ask(0.0), ask(0.0))
    assert [[part.value.tolist() for part in reply.answers] for reply in history.replies] == [[[0], [0]], [[1], [2]]]


@pytest.mark.parametrize("cls", [Streams, StreamsInDisguise])
def test_a_part_is_not_kept_back(monkeypatch: pytest.MonkeyPatch, cls):
    """The first part of a stream goes out before the second is computed, whether or not the stream could be foreseen."""
    clock, policy, ask = begin()
    ask.spec = local(cls(clock)).spec
    one = ask(0.0)
    answer, times = one.reply.answer, []

    def timed(part: Payload, *, last: bool) -> None:
        times.append(clock.now)
        answer(part, last=last)

    monkeypatch.setattr(one.reply, "answer", timed)
    History(cls(clock), clock, policy, one)
    assert times[1] - times[0] == 1.0


def test_a_stream_that_nobody_reads_is_closed():
    """The generator of a client that hangs up is closed at its next part."""
    clock, policy, ask = begin()
    ended: list[float] = []

    class Watched(Doubles):
        def predict(self, X, names):
            try:
                for _ in range(9):
                    yield X
                    self.clock.now += 1
            finally:
                ended.append(self.clock.now)

    ask.spec = local(Watched(clock)).spec
    history = History(Watched(clock), clock, policy, ask(0.0, gone=1.5), ask(0.0, gone=INF))
    assert [len(reply.answers) for reply in history.replies] == [3, 9]
    assert ended[0] == 2.0


def test_what_breaks_inside_the_server_stops_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """An instance that raises something else than it may costs its requests a 500, a line in the log, and nobody else."""
    clock, policy, ask = begin()
    inner = local(Doubles(clock))
    infer = inner.infer
    broken = iter([True])

    def breaks(request: Payload) -> Iterator[Payload]:
        if next(broken, False):
            raise KeyError("inside")
        return infer(request)

    monkeypatch.setattr(inner, "infer", breaks)
    asks = [ask(0.0), ask(0.0), ask(1.0)]
    with caplog.at_level(logging.ERROR, "prefork"):
        Batcher(Scripted(clock, asks), inner, policy, clock=clock).run()
    errors = [one.reply.error for one in asks]
    assert [error and error.status for error in errors] == [500, 500, None]
    assert "failed inside the server" in caplog.text


# --- handing back ------------------------------------------------------------------------------------------------


class HandsBack(Doubles):
    def predict(self, X, names, state=None):
        super().predict(X, names)
        if state is None and 1 in X:
            raise Reschedule("seen")
        return X * 2


def test_a_request_that_is_handed_back_goes_behind_those_that_wait():
    """One that `predict` hands back is asked again with its state, when those were that waited with it."""
    clock, policy, ask = begin(max_batch_size=1)
    model = HandsBack(clock)
    history = History(model, clock, policy, *(ask(0.0) for _ in range(4)))
    assert model.calls == [[0], [1], [2], [1], [3]]
    assert history.values() == [[0], [2], [4], [6]]


def test_a_batch_that_is_handed_back_is_taken_apart():
    """When a merged call is handed back, each of its requests is asked by itself, and may be handed back."""
    clock, policy, ask = begin()
    model = HandsBack(clock)
    history = History(model, clock, policy, ask(0.0), ask(0.0), ask(5.0))
    assert model.calls == [[0, 1], [0], [1], [1], [2]]
    assert history.values() == [[0], [2], [4]]


# --- what it cost ------------------------------------------------------------------------------------------------


class Measures(Doubles):
    def predict(self, X, names):
        super().predict(X, names)
        return X

    def metrics(self):
        return [{"type": "COUNTER", "key": "calls", "value": 1}]

    def tags(self):
        return {"calls": len(self.calls)}


def test_what_a_request_has_cost():
    """Each answer says how long it waited, how long its whole batch took and how many rows that had; one of them leads."""
    clock, policy, ask = begin()
    history = History(Measures(clock), clock, policy, ask(0.0), ask(0.25), ask(0.5, 2))
    costs = [reply.answers[0].cost for reply in history.replies]
    assert [cost.queue_ns for cost in costs] == [0, 750_000_000, 500_000_000]
    assert [cost.compute_ns for cost in costs] == [10**9] * 3
    assert [cost.batch for cost in costs] == [1, 3, 3]
    assert [cost.lead for cost in costs] == [True, True, False]


def test_metrics_are_counted_once():
    """A merged call's tags go to all of its requests, its metrics to one whose client still waits, with the lead."""
    clock, policy, ask = begin()
    history = History(Measures(clock), clock, policy, ask(0.0, gone=0.5), ask(0.0), ask(0.0))
    answers = [reply.answers[0] for reply in history.replies]
    assert [answer.tags for answer in answers] == [{"calls": 1}] * 3
    assert [len(answer.metrics or ()) for answer in answers] == [0, 1, 0]
    assert [answer.cost.lead for answer in answers] == [False, True, False]


def test_a_request_knows_that_it_was_begun():
    """The request's own `cost` is there from the moment at which the model is asked, and never where it is not."""
    clock, policy, ask = begin(max_batch_size=1)
    asks = [ask(0.0), ask(0.0, deadline=0.5)]
    History(Doubles(clock), clock, policy, *asks)
    assert [one.payload.cost is not None for one in asks] == [True, False]


# --- threads -----------------------------------------------------------------------------------------------------


class Blocks:
    """A model that computes until it is told."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.calls: list[list[Any]] = []

    def predict(self, X, names):
        self.calls.append(X.tolist())
        self.begun.release()
        assert self.go_on.wait(20)
        return X * 2


class Waited(Kept):
    """As Kept, with a way to wait for the end."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.over = threading.Event()

    def end(self) -> None:
        super().end()
        self.over.set()


def put(queue: Queue, rules: Batching, value: Any, **parameters: Any) -> Waited:
    reply = Waited()
    payload = Payload(Kind.TENSOR, np.array(value), parameters=parameters)
    queue.put(Terms(rules, local(Blocks()).spec).ask(payload, reply, arrived=time.monotonic()))
    return reply


def started(*targets: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    return threads


def test_who_is_held_is_refused_in_time():
    """A request that was taken, and waits behind a batch, is told that its time is up while the model is still busy."""
    rules = Batching(max_batch_size=4)
    model, queue = Blocks(), Queue(rules)
    replies = [put(queue, rules, [1]), *(put(queue, rules, [value], timeout=200_000) for value in (2.0, 3.0))]
    threads = started(lambda: run(queue, local(model), rules))
    assert model.begun.acquire(timeout=20)
    assert all(reply.over.wait(20) for reply in replies[1:])
    assert not replies[0].over.is_set()
    model.go_on.set()
    queue.close()
    threads[0].join(20)
    assert model.calls == [[1]]
    assert [reply.error and reply.error.message for reply in replies] == [None, *[EXPIRED] * 2]


def test_a_free_thread_takes_what_a_busy_one_holds():
    """Of two threads the second executes what did not fit into the first one's batch, while that computes."""
    rules = Batching(max_batch_size=4)
    model, queue = Blocks(), Queue(rules)
    replies = [put(queue, rules, [1]), put(queue, rules, [2.0]), put(queue, rules, [3])]
    batcher = Batcher(queue, local(model), rules)
    threads = started(batcher.run, batcher.run)
    assert model.begun.acquire(timeout=20)
    assert model.begun.acquire(timeout=20)
    assert sorted(model.calls, key=len) == [[2.0], [1, 3]]
    model.go_on.set()
    queue.close()
    for thread in threads:
        thread.join(20)
    batcher.close()
    assert [reply.answers[0].value.tolist() for reply in replies] == [[2], [4.0], [6]]


def test_a_request_that_is_handed_back_needs_no_other_to_go_on():
    """While another thread waits for requests that do not come, one that was handed back is executed all the same."""
    rules = Batching(max_batch_size=4)
    queue = Queue(rules)
    batcher = Batcher(queue, local(HandsBack(Clock())), rules)
    threads = started(batcher.run, batcher.run)
    replies = [put(queue, rules, [1, at]) for at in range(20)]
    assert all(reply.over.wait(20) for reply in replies)
    queue.close()
    for thread in threads:
        thread.join(20)
    batcher.close()
    assert [reply.answers[0].value.tolist() for reply in replies] == [[2, 2 * at] for at in range(20)]

"""LocalInstance: the verb `infer` on a user's object in this process."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import numpy as np
import pytest

from prefork.errors import BadRequest, ModelFailed, NotImplementedHere
from prefork.instance import LocalInstance, failure
from prefork.model import Model
from prefork.payload import Kind, Payload

X = np.array([[1, 2]])


def local(user_object: object) -> LocalInstance:
    return LocalInstance(Model(user_object, "m"))


def ask(value: Any = "x") -> Payload:
    return Payload(Kind.TENSOR if isinstance(value, np.ndarray) else Kind.TEXT, value)


def values(user_object: object, value: Any = "x") -> list[Any]:
    """All answers of a model to one request, asked from a thread."""
    instance = local(user_object)
    try:
        return [answer.value for answer in instance.infer(ask(value))]
    finally:
        instance.close()


def values_async(user_object: object, value: Any = "x") -> list[Any]:
    """All answers of a model to one request, asked on an event loop."""

    async def main() -> list[Any]:
        return [answer.value async for answer in local(user_object).infer_async(ask(value))]

    return asyncio.run(main())


WAYS = pytest.mark.parametrize("asked", [values, values_async])


class Plain:
    def predict(self, X, names):
        return X + "!"


class Later:
    async def predict(self, X, names):
        await asyncio.sleep(0)
        return X + "!"


class Wrapped:
    def predict(self, X, names):
        return Later().predict(X, names)


class Parts:
    def predict(self, X, names):
        yield from (X + str(i) for i in range(3))


class PartsLater:
    async def predict(self, X, names):
        for i in range(3):
            await asyncio.sleep(0)
            yield X + str(i)


class GivesParts:
    def predict(self, X, names):
        return Parts().predict(X, names)


class GivesPartsLater:
    async def predict(self, X, names):
        return PartsLater().predict(X, names)


@WAYS
@pytest.mark.parametrize("cls", [Plain, Later, Wrapped])
def test_one_answer_is_a_stream_of_length_one(asked, cls: type):
    """A plain, an asynchronous and a disguised asynchronous predict answer once, asked from a thread or on a loop."""
    assert asked(cls()) == ["x!"]


@WAYS
@pytest.mark.parametrize("cls", [Parts, PartsLater, GivesParts, GivesPartsLater])
def test_a_generator_is_a_stream(asked, cls: type):
    """Generators, synchronous or not, declared or merely returned, give an answer for each part."""
    assert asked(cls()) == ["x0", "x1", "x2"]


@pytest.mark.parametrize(
    ("cls", "is_async", "streams"),
    [(Plain, False, False), (Later, True, False), (Parts, False, True), (PartsLater, True, True)],
)
def test_the_function_says_what_it_is(cls: type, is_async: bool, streams: bool):
    """Whether a model is asynchronous and whether it streams is read off its function."""
    instance = local(cls())
    assert (instance.is_async, instance.spec.streams) == (is_async, streams)


@pytest.mark.parametrize("cls", [Parts, PartsLater, GivesParts, GivesPartsLater])
def test_one_answer_of_a_stream_is_refused(cls: type):
    """Who asks a streaming model for its one answer is told of generate_stream."""
    model = Model(cls(), "m")
    with pytest.raises(NotImplementedHere, match="/v2/models/m/generate_stream"):
        model.answer(ask())
    with pytest.raises(NotImplementedHere, match="/v2/models/m/generate_stream"):
        asyncio.run(model.answer_async(ask()))
    model.close()


@pytest.mark.parametrize("cls", [Plain, Later])
def test_one_answer_without_a_stream(cls: type):
    """`answer` and `answer_async` give the one answer itself."""
    model = Model(cls(), "m")
    assert model.answer(ask()).value == "x!"
    assert asyncio.run(model.answer_async(ask())).value == "x!"
    model.close()


class Watched:
    """Notes where its parts ran and how they ended."""

    def __init__(self):
        self.ended: list[str] = []

    def predict(self, X, names):
        try:
            yield "first"
            yield "second"
        except GeneratorExit:
            self.ended.append("closed")
            raise
        finally:
            self.ended.append("done")


class WatchedLater(Watched):
    async def predict(self, X, names):
        try:
            yield "first"
            yield "second"
        except GeneratorExit:
            self.ended.append("closed")
            raise
        finally:
            self.ended.append("done")


@pytest.mark.parametrize("cls", [Watched, WatchedLater])
def test_closing_cancels(cls: type):
    """Closing the iterator closes the user's generator at once, from a thread."""
    user_object = cls()
    instance = local(user_object)
    answers = instance.infer(ask())
    assert next(answers).value == "first"
    answers.close()
    assert user_object.ended == ["closed", "done"]
    instance.close()


@pytest.mark.parametrize("cls", [Watched, WatchedLater])
def test_closing_cancels_on_a_loop(cls: type):
    """Closing the iterator closes the user's generator at once, on an event loop."""
    user_object = cls()

    async def main() -> None:
        answers = local(user_object).infer_async(ask())
        assert (await anext(answers)).value == "first"
        await answers.aclose()
        assert user_object.ended == ["closed", "done"]

    asyncio.run(main())


def test_cancelling_a_task_cancels_an_async_predict():
    """A client that hangs up cancels the coroutine that works for it."""
    ended: list[str] = []
    started = asyncio.Event()

    class Waits:
        async def predict(self, X, names):
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    async def main() -> None:
        task = asyncio.ensure_future(anext(local(Waits()).infer_async(ask())))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["cancelled"]


def test_async_hooks_of_a_model_share_one_loop():
    """From threads every asynchronous hook runs on one loop of the model's own, several at once."""
    loops = set()
    both = threading.Barrier(2, timeout=10)

    class Meets:
        async def predict(self, X, names):
            loops.add(asyncio.get_running_loop())
            await asyncio.to_thread(both.wait)
            return X

    instance = local(Meets())
    callers = [threading.Thread(target=lambda: list(instance.infer(ask()))) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(loops) == 1
    instance.close()
    assert loops.pop().is_closed()
    assert not [thread for thread in threading.enumerate() if thread.name == "model-loop"]


def test_closing_ends_what_still_runs():
    """close() cancels the coroutines that are left on the model's own loop."""
    ended = threading.Event()

    class Leaves:
        async def predict(self, X, names):
            self.task = asyncio.ensure_future(self.linger())
            await asyncio.sleep(0)
            return X

        async def linger(self):
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    instance = local(Leaves())
    list(instance.infer(ask()))
    assert not ended.is_set()
    instance.close()
    assert ended.is_set()


class Teapot(Exception):
    status_code = 418
    reason = "TEAPOT"


class Odd(Exception):
    status_code = "418"


class Beyond(Exception):
    status_code = 42


@pytest.mark.parametrize(
    ("error", "status", "reason", "message"),
    [
        (ValueError("bad"), 500, "MICROSERVICE_INTERNAL_ERROR", "bad"),
        (KeyError("bad"), 500, "MICROSERVICE_INTERNAL_ERROR", "'bad'"),
        (ValueError(), 500, "MICROSERVICE_INTERNAL_ERROR", "ValueError"),
        (StopIteration(), 500, "MICROSERVICE_INTERNAL_ERROR", "StopIteration"),
        (Teapot("short"), 418, "TEAPOT", "short"),
        (Odd("o"), 500, "MICROSERVICE_INTERNAL_ERROR", "o"),
        (Beyond("b"), 500, "MICROSERVICE_INTERNAL_ERROR", "b"),
        (BadRequest("field"), 400, "MICROSERVICE_BAD_DATA", "field"),
    ],
)
def test_what_a_client_is_told_of_an_exception(error: Exception, status: int, reason: str, message: str):
    """Errors keep their own status and reason where they have them; all others are a 500 with their message."""
    found = failure(error)
    assert (found.status, found.reason, found.message) == (status, reason, message)


@pytest.mark.parametrize("cls_error", [ValueError("bad"), StopIteration("bad"), Teapot("bad"), BadRequest("bad")])
def test_exceptions_come_out_chained(cls_error: Exception):
    """The user's own exception is behind what infer raises, with its traceback."""

    class Fails:
        def predict(self, X, names):
            raise cls_error

    with pytest.raises(Exception, match="bad") as caught:
        values(Fails())
    original = caught.value.__cause__ or caught.value
    assert original is cls_error
    assert original.__traceback__ is not None


class FailsLater:
    async def predict(self, X, names):
        raise KeyError("later")


class FailsMidway:
    def predict(self, X, names):
        yield "first"
        raise KeyError("midway")


class FailsMidwayLater:
    async def predict(self, X, names):
        yield "first"
        raise KeyError("midway")


@WAYS
@pytest.mark.parametrize("cls", [FailsLater, FailsMidway, FailsMidwayLater])
def test_exceptions_of_async_and_streaming_models_are_told_alike(asked, cls: type):
    """A coroutine's and a generator's exception is a ModelFailed with the exception chained."""
    with pytest.raises(ModelFailed) as caught:
        asked(cls())
    assert isinstance(caught.value.__cause__, KeyError)


def test_close_calls_the_hook_once():
    """close() calls the user's close() once, and the instance is not ready any more."""

    class Closes:
        closed = 0

        def close(self):
            self.closed += 1

    user_object = Closes()
    instance = local(user_object)
    assert instance.ready()
    instance.close()
    instance.close()
    assert (user_object.closed, instance.ready()) == (1, False)


def test_close_may_be_asynchronous_and_may_be_something_else():
    """An `async def close` is run; a `close` that wants arguments is another thing and is left alone."""
    done: list[str] = []

    class ClosesLater:
        async def close(self):
            done.append("later")

    class Prices:
        def close(self, day):
            done.append(day)

    local(ClosesLater()).close()
    local(Prices()).close()
    assert done == ["later"]


def test_a_failing_close_is_logged(caplog: pytest.LogCaptureFixture):
    """What close() raises is in the log and stops nothing."""

    class Fails:
        def close(self):
            raise OSError("busy")

    with caplog.at_level(logging.ERROR):
        local(Fails()).close()
    assert "OSError: busy" in caplog.text

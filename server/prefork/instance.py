"""An instance: one loaded copy of one version of a model, with the one verb `infer`.

An answer is a stream; one answer is a stream of length one. LocalInstance is the copy in this process.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn, Protocol

from prefork import forks
from prefork.conversation import Conversation, twice
from prefork.errors import Unavailable
from prefork.failure import failure as failure  # noqa: PLC0414 - here is where one looks for it
from prefork.failure import is_users, is_users_async
from prefork.model import Model
from prefork.model.outbox import Outbox
from prefork.model.reschedule import Reschedule
from prefork.payload import ModelSpec, Payload

log = logging.getLogger("prefork")


class Instance(Protocol):
    """What the endpoints know of a model."""

    @property
    def spec(self) -> ModelSpec:
        """What it takes."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether it wants `infer_async`, on the worker's event loop."""
        ...

    def infer(self, request: Payload) -> Iterator[Payload]:
        """The answers to a request as they come; closing the iterator cancels. Raises PreforkError only."""
        ...

    def infer_async(self, request: Payload) -> AsyncIterator[Payload]:
        """As `infer`, on the running event loop."""
        ...

    def ready(self) -> bool:
        """Whether it can be asked."""
        ...

    def close(self) -> None:
        """Unload the model."""
        ...


class LocalInstance:
    """A loaded model in this process: the Instance whose far end is the user's object itself."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._is_open = True
        self._outboxes: set[Outbox] = set()

    @property
    def spec(self) -> ModelSpec:
        """What the model takes."""
        return self._model.spec

    @property
    def is_async(self) -> bool:
        """Whether what it mainly does is `async def`."""
        return self._model.is_async

    @property
    def sends(self) -> bool:
        """Whether `predict` answers through a sender: `open` then spares its threads the waiting."""
        return self._model.sends

    @property
    def custom_service(self) -> Callable[[], None] | None:
        """The object's own blocking service, if it has one."""
        return self._model.custom_service

    def open(self, request: Payload, encode: Callable[[Payload], Any] | None = None) -> Conversation:
        """Begin with a request to a `predict` that has a sender; nothing runs yet.

        encode: what becomes of each part, in the thread that sends it.
        """
        conversation = Conversation(self._model, request, encode, self._outboxes.discard)
        self._outboxes.add(conversation.outbox)
        if not self._is_open:
            self.end_streams()
        return conversation

    def end_streams(self) -> bool:
        """End with a 503 what senders have not closed, whoever holds them; whether there was anything."""
        ended = [outbox.end(Unavailable("the model is being unloaded")) for outbox in tuple(self._outboxes)]
        return any(ended)

    def infer(self, request: Payload) -> Iterator[Payload]:
        """The answers as they come; an asynchronous model runs on an event loop of its own, and this thread waits.

        Raises Reschedule for a request that the model has handed back: `infer` it once more, when others were.
        """
        try:
            if self._model.sends and request.method == "predict":
                yield from self.open(request).in_thread()
            else:
                yield from self._begun(request)
            forks.end()
        except BaseException as error:
            forks.end(error)
            if not is_users(error):
                raise
            _fail(error, request)

    async def infer_async(self, request: Payload) -> AsyncIterator[Payload]:
        """The answers as they come; a model that is not asynchronous holds the event loop up. Raises as `infer`."""
        answers: AsyncIterator[Payload] = (
            self.open(request).on_loop()
            if self._model.sends and request.method == "predict"
            else self._model.stream_async(request)
        )
        try:
            async for answer in answers:
                yield answer
            forks.end()
        except BaseException as error:
            forks.end(error)
            if not is_users_async(error):
                raise
            _fail(error, request)
        finally:
            await answers.aclose()  # type: ignore[attr-defined]

    def _begun(self, request: Payload) -> Iterator[Payload]:
        try:
            return self._model.stream(request)
        except GeneratorExit as error:  # nothing can be closed yet
            raise failure(error) from error

    def ready(self) -> bool:
        """Whether it was not closed yet: it is made of a model that has loaded."""
        return self._is_open

    def close(self) -> None:
        """End the streams, then call the user's `close()` hook, once; what that raises is logged and stops nothing."""
        if not self._is_open:
            return
        self._is_open = False
        self.end_streams()
        try:
            self._model.close()
        except Exception:
            log.exception("close() of the model failed")


def gives_more(answers: Iterator[Payload]) -> bool:
    """Whether the answers, of which the first has come, are a generator's, of a model that says only now that it streams."""
    return inspect.isgenerator(getattr(answers, "gi_yieldfrom", None))


def _fail(error: BaseException, request: Payload) -> NoReturn:
    if isinstance(error, Reschedule):
        if request.again is not None:
            raise twice() from error
        request.again = Reschedule(error.state)  # without its traceback, which holds the frames of this call
        raise error
    found = failure(error)
    if found is error:
        raise error
    raise found from error

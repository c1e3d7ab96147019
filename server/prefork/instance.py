"""An instance: one loaded copy of one version of a model, with the one verb `infer`.

An answer is a stream; one answer is a stream of length one. LocalInstance is the copy in this process.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import NoReturn, Protocol

from prefork.errors import ModelFailed, PreforkError
from prefork.model import Model
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

    @property
    def spec(self) -> ModelSpec:
        """What the model takes."""
        return self._model.spec

    @property
    def is_async(self) -> bool:
        """Whether what it mainly does is `async def`."""
        return self._model.is_async

    def infer(self, request: Payload) -> Iterator[Payload]:
        """The answers as they come; an asynchronous model runs on an event loop of its own, and this thread waits."""
        try:
            yield from self._model.stream(request)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's, sys.exit() too
            _fail(error)

    async def infer_async(self, request: Payload) -> AsyncIterator[Payload]:
        """The answers as they come; a model that is not asynchronous holds the event loop up."""
        answers = self._model.stream_async(request)
        try:
            async for answer in answers:
                yield answer
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's, sys.exit() too
            _fail(error)
        finally:
            await answers.aclose()  # type: ignore[attr-defined]

    def ready(self) -> bool:
        """Whether it was not closed yet: it is made of a model that has loaded."""
        return self._is_open

    def close(self) -> None:
        """Call the user's `close()` hook, once; what that raises is logged and stops nothing."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._model.close()
        except Exception:
            log.exception("close() of the model failed")


def failure(error: BaseException) -> PreforkError:
    """What a client is told of an exception of the user's code.

    A PreforkError is itself; one with an integer `status_code` keeps that, its message and its `reason`; all others are a
    ModelFailed with their text, or the name of their type where they have none.
    """
    if isinstance(error, PreforkError):
        return error
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and 200 <= status <= 599 and not isinstance(status, bool):
        message = getattr(error, "message", None) or str(error)
        return PreforkError(
            str(message), status=status, reason=getattr(error, "reason", None) or "MICROSERVICE_BAD_DATA"
        )
    if isinstance(error, SystemExit):
        return ModelFailed(f"the model called sys.exit({error.code!r}), which ends nothing here")
    return ModelFailed(str(error) or type(error).__name__)


def _fail(error: BaseException) -> NoReturn:
    found = failure(error)
    if found is error:
        raise error
    raise found from error

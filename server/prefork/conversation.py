"""One request to a model that answers through a sender: the run of its `predict`, and the parts that come of it.

The two are apart: `predict` may return long before the last part, or go on after it. Whoever opens a conversation has `ask` run
somewhere and reads the parts somewhere else; `in_thread` and `on_loop` do both for a caller who waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from contextvars import copy_context
from functools import cache, partial
from typing import Any

from prefork import forks
from prefork.errors import ModelFailed
from prefork.failure import Passing, failure, is_users_async
from prefork.model import Model
from prefork.model.outbox import Outbox
from prefork.model.reschedule import Reschedule
from prefork.model.sender import Sender, retire
from prefork.payload import Payload

log = logging.getLogger("prefork")

_running: set[asyncio.Task[None]] = set()
"""Those that go on after their last part: the loop itself holds no task."""


@cache
def _behind() -> threading.local:
    # Made when it is needed: gevent has put its own in the place of Python's by then.
    return threading.local()


class Conversation:
    """A request and its outbox.

    encode: what becomes of each part, in the thread that sends it. ended: see Outbox.
    """

    def __init__(
        self,
        model: Model,
        request: Payload,
        encode: Callable[[Payload], Any] | None = None,
        ended: Callable[[Outbox], object] | None = None,
    ) -> None:
        self._model = model
        self._request = request
        self.outbox = Outbox(partial(_encoded, model, request, encode), failure, request.cancelled, ended)

    def ask(self) -> bool:
        """Run `predict` on this thread, unless nobody waits; whether it has handed the request back.

        Then this is to be called once more, when it is the request's turn again. Raises nothing: what the user's code raises ends
        the parts.
        """
        if self._is_left():
            return False
        sender = Sender(self.outbox)
        try:
            self._model.ask(self._request, sender)
            forks.end()
        except Reschedule as again:
            retire(sender)
            return self._hand_back(again)
        except BaseException as error:
            forks.end(error)
            if isinstance(error, Passing):
                raise
            self._fail(error)
        return False

    async def ask_async(self) -> bool:
        """As `ask`, on the running event loop."""
        if self._is_left():
            return False
        sender = Sender(self.outbox)
        try:
            await self._model.ask_async(self._request, sender)
            forks.end()
        except Reschedule as again:
            retire(sender)
            return self._hand_back(again)
        except BaseException as error:
            forks.end(error)
            if isinstance(error, Passing):
                raise
            if is_users_async(error) or not self.outbox.is_over:
                self._fail(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        return False

    def in_thread(self) -> Iterator[Any]:
        """The parts as they come; `predict` runs in a thread of its own, since one that sends may be held back.

        This thread waits for the `predict` that it had run before, if that goes on after its last part: one thread, one `predict`.
        """
        behind = _behind()
        before = getattr(behind, "thread", None)
        if before is not None:
            before.join()
        context = copy_context()
        behind.thread = threading.Thread(target=context.run, args=(self._ask_all,), name="model-sender", daemon=True)
        behind.thread.start()
        try:
            yield from self.outbox
        finally:
            self.outbox.leave()

    async def on_loop(self) -> AsyncGenerator[Any]:
        """The parts as they come; `predict` runs in a task, which is cancelled when the reader leaves before the end."""
        task = asyncio.ensure_future(self._ask_all_async())
        _running.add(task)
        task.add_done_callback(_running.discard)
        self.outbox.left = task.cancel
        async with aclosing(self.parts()) as parts:
            async for part in parts:
                yield part

    async def parts(self) -> AsyncGenerator[Any]:
        """The parts as they come, of what is asked elsewhere."""
        try:
            async for part in self.outbox:
                yield part
        finally:
            self.outbox.leave()

    def _ask_all(self) -> None:
        if self.ask():
            self.ask()

    async def _ask_all_async(self) -> None:
        if await self.ask_async():
            await asyncio.sleep(0)
            await self.ask_async()

    def _is_left(self) -> bool:
        if self.outbox.cancelled():
            self.outbox.leave()
        return self.outbox.is_over

    def _hand_back(self, again: Reschedule) -> bool:
        if self._request.again is not None:
            self.outbox.end(twice())
        self._request.again = Reschedule(again.state)
        return not self.outbox.is_over

    def _fail(self, error: BaseException) -> None:
        if not self.outbox.fail(error):
            log.error("predict raised after the end of its answer", exc_info=error)


def twice() -> ModelFailed:
    """The end of a request that its model hands back a second time."""
    return ModelFailed("predict raised Reschedule twice for one request; once is all")


def _encoded(model: Model, request: Payload, encode: Callable[[Payload], Any] | None, part: Any) -> Any:
    answer = model.part(part, request)
    return answer if encode is None else encode(answer)

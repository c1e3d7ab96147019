"""An event loop in a thread of its own, for `async def` hooks that are called from threads.

Started by the first call, so that it lives in the worker and not in what was there before the fork. Every hook of a
model runs on the same loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import suppress
from typing import Any

log = logging.getLogger("prefork")

_END = object()
_GRACE = 5.0
"""Seconds that a coroutine has to end once it is cancelled, and the loop to stop."""


class Loop:
    """Runs awaitables and asynchronous iterators for threads that wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """What the awaitable gives, or raises. Blocks this thread."""
        result = asyncio.run_coroutine_threadsafe(_finish(awaitable), self._started()).result()
        if isinstance(result, _Exit):
            raise result.error
        return result

    def iterate(self, parts: AsyncIterator[Any]) -> Iterator[Any]:
        """The parts of an asynchronous iterator; closing this one closes that one, on the loop."""
        try:
            while (part := self.run(_next(parts))) is not _END:
                yield part
        finally:
            close = getattr(parts, "aclose", None)
            if close is not None:
                self.run(close())

    def close(self) -> None:
        """Cancel what still runs, and end the thread. The next call would start another."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None or not thread.is_alive():
            return
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_wind_up(), loop).result(_GRACE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_GRACE)
        if not thread.is_alive():
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # After a fork the thread is dead, and its loop belongs to the parent.
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="model-loop", daemon=True)
                self._thread.start()
            return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until it is closed: neither a stop() nor a sys.exit() of the user's code may leave those who wait for it waiting."""
        while True:
            try:
                loop.run_forever()
            except BaseException:
                log.exception("an event loop was left by the model's code, and goes on")
            if self._loop is not loop:
                return


class _Exit:
    """A sys.exit() of the user's code on its way back, or its like: raised in a task, it would end the loop and leave us waiting."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _finish(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except (SystemExit, KeyboardInterrupt) as error:
        return _Exit(error)


async def _next(parts: AsyncIterator[Any]) -> Any:
    return await anext(parts, _END)


async def _wind_up() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()

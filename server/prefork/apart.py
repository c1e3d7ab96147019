"""Calls that may last, each in a thread of its own: none waits for another, and no pool is used up by those that hang.

The threads are daemons: one that hangs for good does not hinder its process's end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def begin(call: Callable[[], T]) -> asyncio.Future[T]:
    """What the call will have given or raised. Who does not want it any more cancels that; the call goes on."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            found = call()
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
            _tell(loop, answer, answer.set_exception, error)
        else:
            _tell(loop, answer, answer.set_result, found)

    threading.Thread(target=work, name="apart", daemon=True).start()
    return answer


def _tell(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], tell: Callable[[Any], None], what: Any) -> None:
    def say() -> None:
        if not answer.done():
            tell(what)

    try:
        loop.call_soon_threadsafe(say)
    except RuntimeError:
        """The loop has ended meanwhile."""

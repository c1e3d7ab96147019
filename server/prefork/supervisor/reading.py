"""Questions to the disk, each in a thread of its own: a disk or a network that does not answer holds up nobody but who asks it.

The threads are daemons: one that hangs for good hinders neither the supervisor's work nor its end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
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

    threading.Thread(target=work, name="reading", daemon=True).start()
    return answer


async def ask(call: Callable[[], T], seconds: float) -> T:
    """What the call gives or raises. Raises TimeoutError after so many seconds."""
    return await asyncio.wait_for(begin(call), seconds)


class Names:
    """The names that a source has now; those of before where it does not answer, and then it is asked only once."""

    def __init__(self, call: Callable[[], Sequence[str]]) -> None:
        self._call = call
        self._before: Sequence[str] = ()
        self._asked: asyncio.Future[Sequence[str]] | None = None

    async def get(self, patience: float) -> Sequence[str]:
        """In order, after so many seconds at most."""
        if self._asked is None:
            self._asked = begin(self._call)
            self._asked.add_done_callback(self._keep)
        await asyncio.wait({self._asked}, timeout=patience)
        return self._before

    def _keep(self, asked: asyncio.Future[Sequence[str]]) -> None:
        self._asked = None
        self._before = asked.result()


def _tell(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], tell: Callable[[Any], None], what: Any) -> None:
    def say() -> None:
        if not answer.done():
            tell(what)

    try:
        loop.call_soon_threadsafe(say)
    except RuntimeError:
        """The loop has ended meanwhile."""

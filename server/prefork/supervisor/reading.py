"""Questions to the disk, each in a thread of its own: a disk or a network that does not answer holds up nobody but who asks it.

The threads are daemons: one that hangs for good hinders neither the supervisor's work nor its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from prefork.apart import begin

T = TypeVar("T")


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

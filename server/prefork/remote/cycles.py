"""Ends answers that are held open by a reference cycle only.

A sender that the model has let go of ends its request, but one in a cycle is let go of when Python collects it, and a process that
is idle does not. So it is collected while an answer is open for longer, later each time, and never for more than a hundredth of the
time.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

from prefork.remote.peer import Peer

_FIRST = 1.0
_LONGEST = 30.0
_SHARE = 100
"""Times what a collection took that nothing is collected after it."""


class Cycles:
    """busy: the connections that are served. clock: of seconds."""

    def __init__(
        self,
        busy: Mapping[int, Peer],
        clock: Callable[[], float] = time.monotonic,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._busy = busy
        self._clock = clock
        self._collect = collect
        self._seen: list[Peer] = []
        self._wait = _FIRST
        self._next = 0.0

    def look(self) -> None:
        """Collect, if it is time to. To be called about once a second."""
        seen, self._seen = self._seen, list(dict(self._busy).values())
        if not any(self._busy.get(id(peer)) is peer for peer in seen):
            self._wait = _FIRST
        elif gc.isenabled() and (begun := self._clock()) >= self._next:
            self._collect()
            ended = self._clock()
            self._next = ended + max(self._wait, _SHARE * (ended - begun))
            self._wait = min(self._wait * 2, _LONGEST)

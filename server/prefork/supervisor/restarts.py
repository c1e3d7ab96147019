"""When a process that died is started again: at once, then 0.1, 0.2, 0.4 ... seconds later.

The longest wait is two seconds after one that had been ready, as requests may be waiting for the next one, and ten after one that
could not load.
One that was well for ten seconds has earned that its death counts as the first. After three in a row that died as soon as they were
ready the next one is on trial: see `trial`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_FIRST = 0.1
_LONGEST_READY = 2.0
_LONGEST_FAILED = 10.0
_STEADY = 10.0
"""Seconds of being ready after which a death is no sign that the next process will die as well."""
_AT_ONCE = 0.2
"""Seconds of being ready; what dies within them has hardly died of a request."""
_SUSPICIOUS = 3


class Restarts:
    """The deaths in one place, and what they cost. `total` counts them all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_a_row = 0
        self._at_once = 0
        self._well_since: float | None = None
        self.total = 0

    @property
    def trial(self) -> float:
        """Seconds that the next process has to live, once it is loaded, before it counts as ready.

        A model that dies by itself right after `load()` would else be ready and dead in turns for ever, with requests waiting for
        it. Nobody asks it anything during the trial, so requests that kill the model cannot make it fail.
        """
        return _AT_ONCE if self._at_once >= _SUSPICIOUS else 0.0

    def well(self) -> None:
        """The process is ready."""
        self._well_since = self._clock()

    def died(self) -> float:
        """It has died, or could not load; the seconds to wait before the next one."""
        since, self._well_since = self._well_since, None
        if since is not None:
            lived = self._clock() - since
            self._in_a_row = 0 if lived >= _STEADY else self._in_a_row
            self._at_once = self._at_once + 1 if lived < _AT_ONCE and not self.trial else 0
        self._in_a_row += 1
        self.total += 1
        longest = _LONGEST_FAILED if since is None else _LONGEST_READY
        return 0.0 if self._in_a_row == 1 else min(_FIRST * 2.0 ** min(self._in_a_row - 2, 10), longest)

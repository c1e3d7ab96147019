"""How much memory of its own a worker has gained since it was ready, as Linux tells the arbiter.

Own are the pages that nobody else has mapped and that cannot be read again from a file. A page that a worker shares with the
arbiter since the fork becomes its own when it writes to it. Asking costs some 15 ms a gigabyte, so it is asked less often
the longer the answer takes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

_FIELD = re.compile(rb"^(Private_Dirty|Pss_Anon|SwapPss): +(\d+) kB", re.MULTILINE)
_EVERY = 1.0
"""Seconds between two looks, at least."""

_SHARE = 100
"""How many times longer than the look itself the time until the next one is."""


class Growth:
    """Of one process. measure: its own bytes now, or None when it is gone."""

    def __init__(
        self,
        pid: int,
        measure: Callable[[int], int | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = pid
        self._measure = measure or own
        self._clock = clock
        self._first: int | None = None
        self._next = clock()
        self._grown = 0

    @property
    def bytes(self) -> int:
        """The gain since this was asked first, or 0 for a loss."""
        begun = self._clock()
        if begun >= self._next:
            self._look()
            now = self._clock()
            self._next = now + max(_EVERY, _SHARE * (now - begun))
        return self._grown

    def _look(self) -> None:
        found = self._measure(self._pid)
        if found is None:
            return
        if self._first is None:
            self._first = found
        self._grown = max(0, found - self._first)


def own(pid: int) -> int | None:
    """Bytes of memory that are only this process's; None when it is gone."""
    try:
        found = dict(_FIELD.findall(Path(f"/proc/{pid}/smaps_rollup").read_bytes()))
    except PermissionError:  # a worker of another user, in a container that may not look into it
        return _unshared(pid)
    except OSError:
        return None
    if not found:
        return None
    sizes = {name: int(size) << 10 for name, size in found.items()}
    # Pages of a file that was written a moment ago count as dirty too; of anonymous pages there is only this other measure,
    # which has a part of the shared ones in it.
    dirty = sizes[b"Private_Dirty"]
    return min(dirty, sizes.get(b"Pss_Anon", dirty)) + sizes.get(b"SwapPss", 0)


def _unshared(pid: int) -> int | None:
    """As good as anybody may know: what is resident and of no file. Pages shared since a fork count as well."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
    except OSError:
        return None
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 2 else None

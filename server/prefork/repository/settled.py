"""When a folder that is being written to may be looked at: once it has not changed for a moment.

No thread and no waiting here: whoever polls hands in stamps (`fingerprint.folder`) and asks when to come again.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Settled:
    """Tells changes that are over from those that go on.

    quiet: seconds without a change after which one is over; clock: seconds that only grow.
    """

    def __init__(self, quiet: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._accepted: dict[str, str] = {}
        self._pending: dict[str, tuple[str, float]] = {}

    def accept(self, name: str, stamp: str) -> None:
        """Take a stamp for what is known; an empty one is of what is not there."""
        self._pending.pop(name, None)
        if stamp:
            self._accepted[name] = stamp
        else:
            self._accepted.pop(name, None)

    def changed(self, name: str, stamp: str) -> bool:
        """Whether it is another one than was accepted, and has been so for `quiet` seconds. Then it is accepted."""
        if stamp == self._accepted.get(name, ""):
            self._pending.pop(name, None)
            return False
        pending, since = self._pending.get(name, (None, 0.0))
        if pending != stamp:
            self._pending[name] = (stamp, self._clock())
            return False
        if self._clock() - since < self._quiet:
            return False
        self.accept(name, stamp)
        return True

    def names(self) -> set[str]:
        """Everything that was accepted and has not gone, or is changing."""
        return set(self._accepted) | set(self._pending)

    def wait(self) -> float | None:
        """Seconds until the first of the changes that go on may be over; None when there is none."""
        if not self._pending:
            return None
        first = min(since for _, since in self._pending.values())
        return max(0.0, first + self._quiet - self._clock())

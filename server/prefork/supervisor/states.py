"""The life of one loaded copy of a version, and of a version itself: five states, and one guard for the ways between them."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable


class State(enum.Enum):
    """Where a life is. `value` is the word that people read."""

    LOADING = "LOADING"
    """Its processes are starting, for the first time or again after all of them died."""
    READY = "READY"
    """It can be asked."""
    DRAINING = "DRAINING"
    """It finishes what it has, and takes nothing new."""
    GONE = "GONE"
    """Its processes are reaped."""
    FAILED = "FAILED"
    """It could not load; the reason says why. A replacement may still be tried."""

    @property
    def in_index(self) -> str:
        """The same in the words of the Open Inference Protocol's repository index."""
        return _IN_INDEX[self]


_IN_INDEX = {
    State.LOADING: "LOADING",
    State.READY: "READY",
    State.DRAINING: "UNLOADING",
    State.GONE: "UNAVAILABLE",
    State.FAILED: "UNAVAILABLE",
}

_WAYS = {
    State.LOADING: {State.READY, State.DRAINING, State.FAILED},
    State.READY: {State.LOADING, State.DRAINING},
    State.DRAINING: {State.GONE},
    State.GONE: set(),
    State.FAILED: {State.LOADING, State.DRAINING},
}


class Life:
    """A state that only moves along the ways there are, with the reason for it and the wall-clock time since when."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.state = State.LOADING
        self.reason = ""
        self.since = clock()

    def move(self, state: State, reason: str = "") -> None:
        """Go over to a state; to the one it is in, only the reason changes. Raises ValueError where there is no such way."""
        if state is not self.state:
            if state not in _WAYS[self.state]:
                raise ValueError(f"what is {self.state.value} cannot become {state.value}")
            self.state = state
            self.since = self._clock()
        self.reason = reason

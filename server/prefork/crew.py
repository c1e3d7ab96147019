"""What an endpoint may know of the processes around it: who else serves, and whether the server is about to stop."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from prefork.errors import Unavailable


class Colleague(msgspec.Struct, frozen=True):
    """One worker.

    state: `loading`, `ready` or `leaving`. since: when it entered that state, in seconds since the epoch. due: why it is to
    be replaced, empty as long as it is not.
    """

    pid: int
    state: str
    since: float
    due: str = ""


class Crew(Protocol):
    """The workers of one server, seen from one of them."""

    @property
    def is_draining(self) -> bool:
        """Whether the server has been told to stop."""
        ...

    @property
    def trouble(self) -> str:
        """Why the last replacement of a worker could not load; empty when it could."""
        ...

    def colleagues(self) -> Sequence[Colleague]:
        """Every worker, this one among them."""
        ...

    def report_stuck(self) -> None:
        """Say that a model thread of this worker does not come back, so that the worker has to be replaced."""
        ...

    def recycle(self) -> Sequence[int]:
        """Have every worker replaced, a replacement first; the process ids of those that will go. Raises Unavailable."""
        ...


class Alone:
    """A process that serves by itself: a test, or somebody else's server."""

    is_draining = False
    trouble = ""

    def __init__(self) -> None:
        self._since = time.time()

    def colleagues(self) -> Sequence[Colleague]:
        """Only this process."""
        return [Colleague(os.getpid(), "ready", self._since)]

    def report_stuck(self) -> None:
        """Nobody is there to hear it."""

    def recycle(self) -> Sequence[int]:
        """Raise Unavailable."""
        raise Unavailable("this process serves by itself: there is nobody to replace it")

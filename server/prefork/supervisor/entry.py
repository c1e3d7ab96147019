"""What is known of one version of a model: the copy that serves, the one that loads, those that leave, and why there is none."""

from __future__ import annotations

import time

from prefork.supervisor.generation import Generation
from prefork.supervisor.states import State


class Entry:
    """One version under its name."""

    def __init__(self, number: str) -> None:
        self.number = number
        self.serving: Generation | None = None
        self.loading: Generation | None = None
        self.leaving: list[Generation] = []
        self.failure = ""
        self.trace = ""
        self.has_served = False
        self.since = time.time()

    @property
    def is_ready(self) -> bool:
        """Whether its queue may be joined: also for the moment in which its instances are replaced after a death."""
        return self.serving is not None and self.serving.life.state in (State.READY, State.LOADING)

    @property
    def state(self) -> State:
        """The state that people see."""
        if self.serving is not None:
            return self.serving.life.state
        if self.loading is not None:
            return State.LOADING
        if self.leaving:
            return State.DRAINING
        return State.FAILED if self.failure else State.GONE

    @property
    def reason(self) -> str:
        """Why it is in that state; of one that is ready, what went wrong lately."""
        if self.serving is not None:
            late = f"the last load failed: {self.failure}" if self.failure else ""
            return "; ".join(filter(None, (self.serving.life.reason, late)))
        if self.state is State.GONE:
            return "unloaded"
        return self.failure if self.state is State.FAILED else ""

    @property
    def trouble(self) -> str:
        """Why it cannot be served; empty where nothing is wrong with it."""
        return self.reason if self.state is State.FAILED else ""

    @property
    def generations(self) -> list[Generation]:
        """All copies that have processes, or are about to."""
        return [each for each in (self.serving, self.loading, *self.leaving) if each is not None]

    def fail(self, reason: str, trace: str = "") -> None:
        """A load of it has failed."""
        self.failure, self.trace, self.since = reason, trace, time.time()

    def take(self, generation: Generation) -> Generation | None:
        """Have it serve, now that it has loaded; the copy that served before."""
        before, self.serving, self.loading = self.serving, generation, None
        self.has_served = True
        self.since = time.time()
        self.forgive()
        return before

    def forgive(self) -> None:
        """What failed is not so any more, or does not matter."""
        self.failure = self.trace = ""

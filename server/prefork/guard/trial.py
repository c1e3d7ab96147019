"""The trial: one forked child that does what a worker will do, before any worker is forked.

It gives the threads back, loads the model and predicts once, with a deadline for each. A child that hangs or dies there is
a message at the start, where workers would hang in silence, at the first request, for ever.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from prefork.errors import PreloadRefused
from prefork.guard import threads
from prefork.guard.offspring import Offspring
from prefork.guard.place import place
from prefork.model.ownership import Ownership
from prefork.settings import Settings

_CURE = (
    "The model does not survive the fork. Build in load() what it hangs in: load() runs in each worker, after the fork"
)

Begin = Callable[[str], None]
"""Told `load()` and `predict`, as the child comes to them."""


class Outcome(msgspec.Struct, frozen=True):
    """How a trial ended that neither hung nor died. failed: the user's code raised; `text` says what, else what was done."""

    text: str
    failed: bool = False


class Limits(msgspec.Struct, frozen=True):
    """Seconds that a trial has for `load()`, and for everything else."""

    load: float
    other: float

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """The settings'. `load()` has as long as in a worker, where somebody has said how long that is."""
        said = settings.load_timeout if settings.load_timeout != Settings().load_timeout else settings.trial_timeout
        return cls(max(said or math.inf, settings.trial_timeout), settings.trial_timeout)


class Trial:
    """One trial. try_out: what the child runs; it returns what it predicted with, as the log says it."""

    def __init__(self, try_out: Callable[[Begin], str], ownership: Ownership, limits: Limits) -> None:
        self._ownership = ownership
        self._limits = limits
        self._step = "the start"
        self._tid = 0
        self._child = Offspring(lambda say: _live(try_out, say))

    def outcome(self) -> Outcome:
        """What came of it. Raises PreloadRefused for a hang or a death, with the place where it came to that."""
        try:
            outcome = self._watched()
        except TimeoutError:
            self._refuse_hang()
        except BaseException:
            self._child.end()
            raise
        code = self._child.end(signal.SIGCONT)
        if code < 0 and outcome is None:
            self._refuse_death(signal.Signals(-code).name)
        return outcome or Outcome(f"it left with status {code} in {self._step}", failed=True)

    def _watched(self) -> Outcome | None:
        while (line := self._child.line(time.monotonic() + self._limit)) is not None:
            if "failed" in line:
                return Outcome(f"{self._step} failed: {line['failed']}", failed=True)
            if "done" in line:
                return Outcome(line["done"])
            self._step, self._tid = line["step"], line["tid"]
        return None

    @property
    def _limit(self) -> float:
        return self._limits.load if self._step == "load()" else self._limits.other

    def _refuse_hang(self) -> NoReturn:
        library = os.path.basename(threads.inside(self._child.pid, self._tid))  # noqa: PTH119 - it may be nothing
        self._child.end(signal.SIGABRT)
        where = self._where()
        native = f", inside {library}" if library and not threads.is_pythons(library) else ""
        raise PreloadRefused(
            f"preload_app: the trial child hung in {self._step} for {self._limit:g} s{native}{where}. {_CURE}. If it is "
            "only slow, raise trial_timeout; `preload_app: force` forks all the same"
        )

    def _refuse_death(self, name: str) -> NoReturn:
        raise PreloadRefused(
            f"preload_app: the trial child died in {self._step} by {name}{self._where()}. {_CURE}; "
            "`preload_app: force` forks all the same"
        )

    def _where(self) -> str:
        where = place(self._child.stacks, self._ownership)
        return f", at {where}" if where else ""


def _live(try_out: Callable[[Begin], str], say: Callable[[dict[str, Any]], None]) -> None:
    try:
        told = try_out(lambda step: say({"step": step, "tid": threading.get_native_id()}))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own
        say({"failed": f"{type(error).__name__}: {error}"})
    else:
        say({"done": told})

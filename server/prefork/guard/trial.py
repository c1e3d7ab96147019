"""The trial: one forked child that does what a worker will do, before any worker is forked.

It gives the threads back, loads the model and predicts once, with a deadline for each. A child that hangs or dies there is
a message at the start, where workers would hang in silence, at the first request, for ever.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from prefork.errors import PreloadRefused
from prefork.guard import threads
from prefork.guard.offspring import Offspring
from prefork.model.ownership import Ownership

_CURE = (
    "The model does not survive the fork. Build in load() what it hangs in: load() runs in each worker, after the fork"
)
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')

Begin = Callable[[str], None]
"""Told `load()` and `predict`, as the child comes to them."""


class Outcome(msgspec.Struct, frozen=True):
    """How a trial ended that neither hung nor died. failed: the user's code raised; `text` says what, else what was done."""

    text: str
    failed: bool = False


class Trial:
    """One trial. try_out: what the child runs; it returns what it predicted with, as the log says it."""

    def __init__(self, try_out: Callable[[Begin], str], ownership: Ownership, timeout: float) -> None:
        self._ownership = ownership
        self._timeout = timeout
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
        while (line := self._child.line(time.monotonic() + self._timeout)) is not None:
            if "failed" in line:
                return Outcome(f"{self._step} failed: {line['failed']}", failed=True)
            if "done" in line:
                return Outcome(line["done"])
            self._step, self._tid = line["step"], line["tid"]
        return None

    def _refuse_hang(self) -> NoReturn:
        library = os.path.basename(threads.inside(self._child.pid, self._tid))  # noqa: PTH119 - it may be nothing
        self._child.end(signal.SIGABRT)
        where = self._where()
        native = f", inside {library}" if library and not threads.is_pythons(library) else ""
        raise PreloadRefused(
            f"preload_app: the trial child hung in {self._step} for {self._timeout:g} s{native}{where}. {_CURE}. If it is "
            "only slow, raise trial_timeout; `preload_app: force` forks all the same"
        )

    def _refuse_death(self, name: str) -> NoReturn:
        raise PreloadRefused(
            f"preload_app: the trial child died in {self._step} by {name}{self._where()}. {_CURE}; "
            "`preload_app: force` forks all the same"
        )

    def _where(self) -> str:
        """The innermost line of the user's code on the stack of the thread that the step ran in."""
        frames = [match.groupdict() for match in map(_FRAME.match, self._own_stack()) if match]
        own = next((frame for frame in frames if self._ownership.owns(frame["file"])), None)
        own = own or next(iter(frames), None)
        if own is None:
            return ""
        path = os.path.relpath(own["file"])
        return f", at {own['file'] if path.startswith('..') else path}:{own['line']} in {own['function']}"

    def _own_stack(self) -> list[str]:
        """The lines of the one stack, among those of all threads, that calls the user's code."""
        stacks = self._child.stacks.split("\n\n")
        chosen = [each for each in stacks if any(self._is_owned(line) for line in each.splitlines())]
        return (chosen or stacks or [""])[0].splitlines()

    def _is_owned(self, line: str) -> bool:
        match = _FRAME.match(line)
        return match is not None and self._ownership.owns(match["file"])


def _live(try_out: Callable[[Begin], str], say: Callable[[dict[str, Any]], None]) -> None:
    try:
        told = try_out(lambda step: say({"step": step, "tid": threading.get_native_id()}))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own
        say({"failed": f"{type(error).__name__}: {error}"})
    else:
        say({"done": told})

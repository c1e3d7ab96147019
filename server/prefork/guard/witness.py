"""Finds the line of the user's code that began what does not survive a fork, by building the class once more.

The witness is forked before the first building and waits. Only when that is refused it builds too, looking at its own
threads behind each line of the user's files: the line behind which a culprit's thread is new is the one that began it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from prefork.guard import contexts, threads
from prefork.guard.examination import culprits
from prefork.guard.offspring import Offspring, Say
from prefork.model.ownership import Ownership

_DEADLINE = 120.0
"""Seconds that a witness may take; after that there is no line in the message."""

_CUDA, _TENSORFLOW = -1, -2
"""What stands for the two contexts among the numbers of threads."""


class Witness:
    """A child that has seen nothing of the user's code yet."""

    def __init__(self, build: Callable[[], object], ownership: Ownership) -> None:
        ask, self._ask = os.pipe()
        self._build = build
        self._ownership = ownership
        self._child = Offspring(lambda say: self._live(ask, say))
        os.close(ask)

    def lines(self) -> dict[str, str]:
        """By culprit, the line that began it, as `Iris.py:7: self.net = load(path)`. At most once, instead of `dismiss`."""
        os.write(self._ask, b"!")
        try:
            return self._child.line(time.monotonic() + _DEADLINE) or {}
        except TimeoutError:
            return {}
        finally:
            self._end(signal.SIGCONT)

    def dismiss(self) -> None:
        """End it, unasked."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        os.close(self._ask)
        self._child.end(how)

    def _live(self, ask: int, say: Say) -> None:
        os.close(self._ask)  # or it would keep its own question open when the master has died
        if not os.read(ask, 1):
            return
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)  # the user's code has said all this before
        os.dup2(null, 2)
        watch = _Watch(self._ownership)
        watch.run(self._build)
        say(watch.told())


class _Watch:
    """The line behind which each thread was new."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._known: dict[CodeType, bool] = {}
        self._last: tuple[str, int] | None = None
        self._begun: dict[int, tuple[str, int]] = {}
        self._before = _signs()

    def run(self, build: Callable[[], object]) -> None:
        """Build, with every line of the user's watched."""
        sys.settrace(self._enter)
        try:
            self._built = build()  # kept: threads may end with the object
        finally:
            sys.settrace(None)
            self._look()

    def told(self) -> dict[str, str]:
        """By culprit, the first of its lines."""
        told = {}
        for each in culprits():
            signs = (*each.tids, *{"CUDA": (_CUDA,), "TensorFlow": (_TENSORFLOW,)}.get(each.who, ()))
            place = next((self._begun[sign] for sign in signs if sign in self._begun), None)
            if place is not None and each.who not in told:
                told[each.who] = _quoted(*place)
        return told

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        owned = self._known.get(code)
        if owned is None:
            owned = self._known[code] = self._ownership.owns(code.co_filename)
        return self._step if owned else None

    def _step(self, frame: FrameType, event: str, _argument: object) -> Any:
        self._look()
        if event == "line":
            self._last = (frame.f_code.co_filename, frame.f_lineno)
        elif event == "return":
            caller = frame.f_back
            if caller is not None and self._known.get(caller.f_code):
                self._last = (caller.f_code.co_filename, caller.f_lineno)
        return self._step

    def _look(self) -> None:
        now = _signs()
        if self._last is not None:
            for sign in now - self._before:
                self._begun.setdefault(sign, self._last)
        self._before |= now


def _signs() -> set[int]:
    signs = threads.ids()
    if contexts.tensorflow():
        signs.add(_TENSORFLOW)
    if contexts.cuda_in_use():
        signs.add(_CUDA)
    return signs


def _quoted(file: str, number: int) -> str:
    try:
        text = Path(file).read_text(encoding="utf-8").splitlines()[number - 1].strip()
    except (OSError, IndexError, UnicodeDecodeError):
        text = ""
    where = os.path.relpath(file)
    return f"{file if where.startswith('..') else where}:{number}" + (f": {text}" if text else "")

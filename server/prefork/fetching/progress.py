"""How far a long work is: what, how many bytes, how fast, how long so far.

A terminal gets a bar that is drawn over itself, anything else a line in the log every few seconds:

    s3://models/iris  [###########.................]  38 %  1.2 of 3.1 GiB  84.0 MiB/s  15 s
    s3://models/iris: 1.2 of 3.1 GiB (38 %), 84.0 MiB/s, 15 s so far

Work of which no bytes are known, a framework's own reading of a file, is shown by `ticking`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self, TextIO

log = logging.getLogger("prefork")

_REDRAWN = 0.1
_LOGGED = 5.0
_WIDTH = 28
_LEAST_WIDTH = 8
_ENOUGH = 1000
_LOOKED = 1.0
"""Seconds between two looks at what does not report: at most so late is a line of the log."""


class Progress:
    """The progress of one work. what: its name; total: bytes, None where that is not known.

    note: one thing more that each line says. patience: seconds before the first, where not as many as between two.
    Usable from several threads. As a context it ends with `finish`, or with the bar wiped where the work has failed.
    Short works are silent: what is over before the first line was due has none.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        note: Callable[[], str] = str,
        patience: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        self._every = _REDRAWN if self._is_terminal else _LOGGED
        self._note = note
        self._began = clock()
        self._due = self._began + (self._every if patience is None else patience)
        self._has_shown = False
        self._found: int | None = None
        self._lock = threading.Lock()

    def expect(self, total: int | None, done: int = 0) -> None:
        """Say how many bytes there are in all, and how many of them were there before."""
        with self._lock:
            self.total = total
            self.done = self._found = done

    def advance(self, count: int) -> None:
        """Say that so many more bytes are done."""
        with self._lock:
            self.done += count
            self._tell_if_due()

    def at(self, done: int) -> None:
        """Say how many bytes are done in all."""
        with self._lock:
            self.done = done
            self._tell_if_due()

    def tick(self) -> None:
        """Show how long it has taken, where it is time to."""
        with self._lock:
            self._tell_if_due()

    @contextmanager
    def ticking(self) -> Iterator[Self]:
        """Show it from a thread of its own, which is gone at the end, while something works that does not report."""
        over = threading.Event()

        def tick() -> None:
            while not over.wait(min(self._every, _LOOKED)):
                self.tick()

        thread = threading.Thread(target=tick, name="progress", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def clear(self) -> None:
        """Take the bar away, so that a line of the log does not stand in it."""
        with self._lock:
            if self._is_terminal and self._has_shown:
                self._write("\r\x1b[K")

    def finish(self) -> None:
        """Say what it came to, if anything has been said before."""
        with self._lock:
            if not self._has_shown:
                return
            if self._is_terminal:
                self._write(f"\r\x1b[K{self._bar()}\n")
            else:
                log.info("%s: %s in %.0f s", self.what, amount(self.done), self._seconds())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.clear()

    def _tell_if_due(self) -> None:
        now = self._clock()
        if now < self._due:
            return
        self._due = now + self._every
        self._has_shown = True
        if self._is_terminal:
            self._write(f"\r\x1b[K{self._bar()}")
        else:
            log.info("%s", self._line())

    def _line(self) -> str:
        parts = []
        if self.total or self.done:
            parts.append(self._of() + (f" ({self._share():.0%})" if self.total else ""))
        return f"{self.what}: {', '.join([*parts, *self._pace(), f'{self._seconds():.0f} s so far'])}"

    def _bar(self) -> str:
        parts = [f"{self._share():4.0%}"] if self.total else []
        if self.total or self.done:
            parts.append(self._of())
        rest = "  ".join([*parts, *self._pace(), f"{self._seconds():.0f} s"])
        columns = self._columns()
        drawn = self._drawn(columns - len(f"{self.what}  []  {rest}"))
        # What goes over the edge starts a line, which is not drawn over.
        return "  ".join(filter(None, [self.what, drawn, rest]))[:columns]

    def _drawn(self, width: int) -> str:
        width = min(_WIDTH, width)
        if not self.total or width < _LEAST_WIDTH:
            return ""
        full = int(self._share() * width)
        return f"[{'#' * full}{'.' * (width - full)}]"

    def _columns(self) -> int:
        """The terminal's, less the one for the cursor; a terminal that does not say how wide it is has enough."""
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(self._stream.fileno()).columns
            return columns - 1 if columns else _ENOUGH
        return _ENOUGH

    def _pace(self) -> list[str]:
        rate = self._rate()
        return [each for each in (f"{amount(rate)}/s" if rate else "", self._note()) if each]

    def _of(self) -> str:
        return f"{amount(self.done)} of {amount(self.total)}" if self.total else amount(self.done)

    def _share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0

    def _seconds(self) -> float:
        return self._clock() - self._began

    def _rate(self) -> int:
        """Bytes a second, without those that were there before."""
        seconds = self._seconds()
        return int((self.done - (self._found or 0)) / seconds) if seconds > 0 else 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def amount(count: int) -> str:
    """A number of bytes for a person."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"

"""A model's own output, line by line with the model's name in front.

Nothing is lost: a line that is longer than the limit comes in pieces, and one without an end is written when the output ends.
"""

from __future__ import annotations

import collections
import os
import select
from asyncio import AbstractEventLoop
from collections.abc import Callable

_LIMIT = 8192
_READ = 1 << 16
_MOST_READS = 32
"""More than the largest pipe holds: who still writes into it then has left the model's group, and is not waited for."""


class Lines:
    """Cuts a stream of bytes into lines. `write` gets each with the prefix and the line feed, `tail` without."""

    def __init__(
        self, prefix: str, write: Callable[[bytes], None], tail: collections.deque[str], limit: int = _LIMIT
    ) -> None:
        self._prefix = prefix.encode()
        self._write = write
        self._tail = tail
        self._limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take more of the stream."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        pieces = [piece for line in whole for piece in self._pieces(line)]
        *full, self._rest = self._pieces(self._rest)
        self._put([*pieces, *full])

    def end(self) -> None:
        """Take the line that has no end for whole."""
        rest, self._rest = self._rest, b""
        if rest:
            self._put([rest])

    def _pieces(self, line: bytes) -> list[bytes]:
        if len(line) <= self._limit:
            return [line]
        return [line[at : at + self._limit] for at in range(0, len(line), self._limit)]

    def _put(self, lines: list[bytes]) -> None:
        if lines:
            self._tail.extend(line.decode(errors="replace") for line in lines[-(self._tail.maxlen or len(lines)) :])
            self._write(b"".join(self._prefix + line + b"\n" for line in lines))


class Output:
    """The reading end of a process's output, which feeds lines until its last writer has gone."""

    def __init__(self, descriptor: int, lines: Lines, loop: AbstractEventLoop) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._lines = lines
        self._loop = loop
        loop.add_reader(descriptor, self._read)

    def close(self) -> None:
        """Copy what has been written so far, and read no more."""
        for _ in range(_MOST_READS):
            if self._descriptor < 0 or not self._read():
                break
        self._end()

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        self._lines.feed(data)
        return True

    def _end(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self._lines.end()


def to_stderr(data: bytes) -> None:
    """Write to this process's standard error, whole. Where nobody reads that any more, it is dropped."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(2, view) :]
        except BlockingIOError:
            select.select([], [2], [])
        except OSError:
            return

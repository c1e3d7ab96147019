"""Shows that a model loads, once that takes longer than a moment: what, how much of its file, memory, how long so far.

    loading iris: 1.2 GiB of 3.1 GiB (38%), 2.0 GiB of memory, 15 s so far

The log has a line every few seconds, a terminal a bar; of the workers that load at the same time one draws it. Whoever has said
anything says at the end that the model is loaded. A library that keeps the interpreter to itself meanwhile lets nothing be said.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from prefork.fetching.progress import Progress, amount
from prefork.model.hooks import found

log = logging.getLogger("prefork")

_PATIENCE = 2.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


@contextmanager
def loading(name: str, user_object: object) -> Iterator[None]:
    """Show it while the object's `load()` runs inside. An object with a `saved_path` loads the file or folder there."""
    path = getattr(user_object, "saved_path", None)
    if found(user_object, "load") is None:
        yield
        return
    with Loading(name, path if isinstance(path, Path) else None) as shown, shown.ticking():
        yield


class Loading(Progress):
    """The progress of a `load()`. path: the file or folder that is read, if that is known."""

    def __init__(
        self,
        name: str,
        path: Path | None = None,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reading = Reading(path)
        self._desk = Desk(sys.stderr if stream is None else stream)
        super().__init__(
            f"loading {name}",
            self._reading.total or None,
            note=self._memory,
            patience=_PATIENCE,
            stream=stream,
            clock=clock,
        )
        self._name = name

    def tick(self) -> None:
        """Look how far it is, and show it where it is time to."""
        if self._desk.is_mine():
            self.at(self._reading.so_far() if self.total else 0)

    def finish(self) -> None:
        """Say that it is loaded, if anything has been said before."""
        self.clear()
        if self._has_shown:
            log.info("%s is loaded, in %.0f s, %s", self._name, self._seconds(), self._memory())

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        self._desk.leave()

    def _rate(self) -> int:
        return 0  # most of the time is not spent reading

    def _memory(self) -> str:
        held = f"{amount(_resident())} of memory"
        return held if self.total else f"{amount(self._reading.so_far())} read, {held}"


class Reading:
    """How many bytes of a file, or of all files of a folder, this process has read so far. total: how many there are.

    A file that is open tells how far it has been read. Where none does, as of one that is mapped, the kernel's count of what the
    process has read since is taken, unless that is more than there is. Without a path it is that count.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None else os.path.realpath(path)
        self.total = 0 if path is None else size_of(path)
        self._furthest: dict[str, int] = {}
        self._before = _counted()

    def so_far(self) -> int:
        """The bytes."""
        counted = max(0, _counted() - self._before)
        if self._path is None:
            return counted
        self._look()
        seen = sum(self._furthest.values())
        return seen or (counted if counted <= self.total else 0)

    def _look(self) -> None:
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError, ValueError):
                name = str(link.readlink())
                if name == self._path or name.startswith(f"{self._path}/"):
                    self._furthest[name] = max(self._furthest.get(name, 0), _position(link.name))


class Desk:
    """A terminal that several processes would draw on: the first that comes has it, until it leaves."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor = -1

    def is_mine(self) -> bool:
        """Whether this process may draw. What is no terminal is everybody's."""
        if self._descriptor >= 0 or not self._stream.isatty():
            return True
        descriptor = -1
        try:
            # A description of its own: the inherited one would share its lock with every worker.
            descriptor = os.open(f"/proc/self/fd/{self._stream.fileno()}", os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:  # it cannot be told
            return True
        self._descriptor = descriptor
        return True

    def leave(self) -> None:
        """Let another have it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder; 0 where it cannot be looked at."""
    with suppress(OSError):
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        return sum(each.stat().st_size for each in files)
    return 0


def _position(descriptor: str) -> int:
    head = Path(f"/proc/self/fdinfo/{descriptor}").read_text().partition("\n")[0]
    return int(head.partition(":")[2])


def _counted() -> int:
    """What this process has read: by calls, or by touching what is mapped."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/self/io").read_text().splitlines()
        counts = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
        return max(counts["rchar"], counts["read_bytes"])
    return 0


def _resident() -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    return 0

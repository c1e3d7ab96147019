"""The native threads of a process, and whose they are.

A fork copies the thread that forks and no other. What waits for one of the others then waits for ever, in silence. A
thread that sleeps in the kernel tells where its stack is (/proc/PID/task/TID/syscall), and the addresses on that stack
tell whose code it runs: the one at the bottom, above the C library that started it, is the owner's.
"""

from __future__ import annotations

import array
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from prefork.guard.mappings import Code, Mapping, mappings

_SYSTEM = re.compile(r"(ld-linux|ld-musl|libc|libpthread|libstdc\+\+|libgcc_s|libm|libdl|librt)[-.\d]")
_SURVIVING = re.compile(r"openblas|libiomp5|libomp[-.]")
"""Pools that are made anew in the child: their libraries have a handler for forks."""

_SURVIVING_NAMES = frozenset({"jemalloc_bg_thd"})
_PYTHON = re.compile(r"(lib)?python[\d.]*(\.so.*)?$")
_STACK = 1 << 18
"""Bytes of a stack that are looked at."""

_PATIENCE = 1.0
"""Seconds for which a thread that runs is given the time to fall asleep; an OpenMP pool spins a while after its work."""


class Thread(msgspec.Struct, frozen=True):
    """A native thread. library: the path of its owner's code, nothing where that cannot be known.

    python: the name of a thread of Python's, and the line of Python that it is at; else nothing.
    """

    tid: int
    name: str
    library: str = ""
    python: str = ""

    @property
    def survives(self) -> bool:
        """Whether its owner is known to begin anew after a fork."""
        return self.name in _SURVIVING_NAMES or bool(_SURVIVING.search(os.path.basename(self.library)))  # noqa: PTH119


def ids(pid: int | str = "self") -> set[int]:
    """The threads of a process."""
    return {int(name) for name in os.listdir(f"/proc/{pid}/task")}  # noqa: PTH208 - three times as fast, and it is traced


def others() -> list[Thread]:
    """Every thread of this process but the one that asks."""
    own = threading.get_native_id()
    deadline = time.monotonic() + _PATIENCE
    found = [_told(tid, deadline) for tid in sorted(ids() - {own})]
    return [each for each in found if each is not None]


def inside(pid: int, tid: int) -> str:
    """The path of the library in whose code a thread of another process waits; nothing where that cannot be seen."""
    with suppress(OSError, ValueError):
        return next(_owners(pid, tid), "")
    return ""


def _told(tid: int, deadline: float) -> Thread | None:
    name = python = library = ""
    with suppress(OSError, ValueError):
        name = Path(f"/proc/self/task/{tid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        python = _of_python(tid)
        while not library and (owners := list(_owners("self", tid))) is not None:
            library = owners[-1] if owners else ""
            if library or time.monotonic() > deadline:
                break
            time.sleep(0.01)
    # A thread that had ended before it could be looked at is no danger any more.
    return Thread(tid, name, library, python) if tid in ids() else None


def _owners(pid: int | str, tid: int) -> Iterator[str]:
    """The files whose code stands on a thread's stack, innermost first, without the C library; none while it runs."""
    words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text(encoding="ascii").split()
    if words[0] == "running":
        return
    pointer = int(words[-2], 16)
    every = mappings(pid)
    stack = next((each for each in every if each.start <= pointer < each.end), None)
    if stack is None:
        return
    code = Code(every)
    for address in _words(pid, pointer, stack):
        path = code.file(address)
        if path and not _SYSTEM.match(os.path.basename(path)):  # noqa: PTH119 - of thousands of addresses
            yield path


def _words(pid: int | str, pointer: int, stack: Mapping) -> array.array[int]:
    words = array.array("Q")
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(pointer)
        data = memory.read(min(stack.end - pointer, _STACK)) or b""
    words.frombytes(data[: len(data) // 8 * 8])
    return words


def _of_python(tid: int) -> str:
    thread = next((each for each in threading.enumerate() if each.native_id == tid), None)
    frame = sys._current_frames().get(thread.ident or 0) if thread is not None else None  # noqa: SLF001 - the only way
    if thread is None:
        return ""
    return f"{thread.name!r}{_place(frame)}"


def _place(frame: FrameType | None) -> str:
    """Where a thread of Python's is, outside of Python's own `threading`; nothing where all of it is in there."""
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
    return f", at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def is_pythons(library: str) -> bool:
    """Whether a library is the Python interpreter."""
    return bool(_PYTHON.match(os.path.basename(library)))  # noqa: PTH119

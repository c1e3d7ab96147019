"""What the kernel does for a supervisor: it tells of deaths, hands orphans over, and knows who belongs to whom.

A process is known by its id and its start, in clock ticks since the machine has: an id alone may be somebody else's by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with(parent: int, how: signal.Signals) -> bool:
    """Have the kernel send `how` to this process when its parent dies; whether the parent still lives."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(how), 0, 0, 0)
    return os.getppid() == parent


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that each of them is seen and reaped."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """The processes whose parent is this one; zombies too."""
    try:
        texts = [each.read_text() for each in Path("/proc/self/task").glob("*/children")]
    except OSError:
        texts = []
    if texts:
        return [int(pid) for text in texts for pid in text.split()]
    here = os.getpid()  # a kernel without CONFIG_PROC_CHILDREN
    return [pid for pid, fields in processes() if fields.parent == here]


class Fields:
    """What /proc/PID/stat says: the parent's id, the group's, the session's, the start."""

    __slots__ = ("group", "parent", "session", "start", "state")

    def __init__(self, text: str) -> None:
        # The name of the program stands in brackets and may hold anything, brackets too.
        after = text[text.rindex(")") + 2 :].split()
        self.state = after[0]
        self.parent, self.group, self.session = int(after[1]), int(after[2]), int(after[3])
        self.start = int(after[19])


def fields(pid: int) -> Fields | None:
    """Those of a process; None where there is none of that id."""
    try:
        return Fields(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except (OSError, ValueError):
        return None


def processes() -> Iterator[tuple[int, Fields]]:
    """Every process that can be seen."""
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and (found := fields(int(path.name))) is not None:
            yield int(path.name), found


def variable(pid: int, name: str) -> str:
    """An environment variable that a process was started with; empty where it has none, or it is not ours to know."""
    try:
        block = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    start = f"{name}=".encode()
    return next(
        (each[len(start) :].decode(errors="replace") for each in block.split(b"\0") if each.startswith(start)), ""
    )


def boot() -> str:
    """A word for this start of the machine: ids and starts of processes mean nothing across it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def kill(pid: int, how: signal.Signals) -> None:
    """Signal a process, if it is there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, how)


def kill_group(group: int, how: signal.Signals) -> None:
    """Signal every process of a group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, how)


async def ended(pid: int) -> None:
    """Wait until a process has ended; at once where there is none."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    waiter = asyncio.get_running_loop().create_future()
    stop = watch(descriptor, lambda: _wake(waiter))
    try:
        await waiter
    finally:
        stop()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def watch(descriptor: int, call: Callable[[], object]) -> Callable[[], None]:
    """Call once the descriptor can be read, until the function that is returned is called, which closes it."""
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, call)
    is_open = True

    def stop() -> None:
        nonlocal is_open
        if is_open:
            is_open = False
            loop.remove_reader(descriptor)
            os.close(descriptor)

    return stop

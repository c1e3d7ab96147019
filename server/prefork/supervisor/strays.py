"""Ends what a dead process has left: its group, and descendants that have left the group but still carry its mark.

This process has adopted them all, so that each is its child once its own parent is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Container

from prefork.supervisor import kernel
from prefork.supervisor import mark as marks

_PATIENCE = 5.0
"""Seconds for killed processes to end: one that hangs in the kernel is left to it."""


async def sweep(group: int, mark: str, known: Container[int]) -> int:
    """Kill and reap the descendants of an instance whose first process is reaped; how many there were.

    group: the instance's; known: children of this process that are no strays.
    """
    kernel.kill_group(group, signal.SIGKILL)
    count = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            # Each one that ends may hand its own children over.
            while strays := [pid for pid in kernel.children() if pid not in known and _is_of(pid, group, mark)]:
                count += len(strays)
                for pid in strays:
                    kernel.kill(pid, signal.SIGKILL)
                for pid in strays:
                    await kernel.ended(pid)
                    bury(pid)
    return count


def bury(pid: int) -> None:
    """Reap a child whose exit status is of no interest, if it has ended."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def bury_all(known: Container[int]) -> None:
    """Reap every adopted child that has ended by itself."""
    for pid in kernel.children():
        if pid not in known:
            bury(pid)


def _is_of(pid: int, group: int, mark: str) -> bool:
    found = kernel.fields(pid)
    return found is not None and (found.group == group or marks.is_on(pid, mark))

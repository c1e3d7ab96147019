"""The processes that a supervisor has started, also on disk, so that the next one can end what this one leaves behind.

RUN_DIR/instances/<pid> holds the word for the machine's start and the process's own start: together they tell it from another
one that has its id by then. A second line is the model and version that it serves, for the metrics. A descendant that has left its group is known by its mark.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Container
from pathlib import Path

from prefork.supervisor import kernel
from prefork.supervisor import mark as marks

_PATIENCE = 2.0
"""Seconds for what was killed to end: the memory is needed for what comes next."""


class Roster:
    """Ids of processes. Each has its file."""

    def __init__(self, run_dir: str | Path) -> None:
        self._pids: set[int] = set()
        self.mark = f"{Path(run_dir).resolve()}:"
        self._folder = Path(run_dir, "instances")
        self._boot = kernel.boot()

    def __contains__(self, pid: object) -> bool:
        return pid in self._pids

    def add(self, pid: int, serves: str = "") -> None:
        """One was started. serves: `model/version`, of an instance."""
        self._pids.add(pid)
        found = kernel.fields(pid)
        self._folder.mkdir(exist_ok=True)
        (self._folder / str(pid)).write_text(f"{self._boot} {found.start if found else 0}\n{serves}\n")

    def discard(self, pid: int) -> None:
        """One was reaped."""
        self._pids.discard(pid)
        (self._folder / str(pid)).unlink(missing_ok=True)

    async def end_leftovers(self) -> int:
        """Kill every process that an earlier supervisor of the run directory has left, with its group; how many there were."""
        groups = {int(each.name) for each in self._folder.glob("*") if self._is_ours(each)}
        left = _running(groups, self.mark)
        for pid in left:
            kernel.kill(pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                for pid in left:
                    await kernel.ended(pid)
        for each in self._folder.glob("*"):
            each.unlink()
        return len(left)

    def kill_all(self) -> None:
        """Kill every process of the run directory, and do not wait for any; from any thread."""
        until = time.monotonic() + _PATIENCE
        # One that is killed may have started another since it was looked at.
        while (left := _running(set(self._pids), self.mark)) and time.monotonic() < until:
            for pid in left:
                kernel.kill(pid, signal.SIGKILL)

    def _is_ours(self, record: Path) -> bool:
        """Whether the session that the record names still is what it was, if there is anything of it."""
        boot, _, start = record.read_text().partition("\n")[0].partition(" ")
        if boot != self._boot:
            return False
        found = kernel.fields(int(record.name))
        # An id is not given out again while a session has its name: without its first process, whoever is in it is a descendant.
        return found is None or str(found.start) == start


def _running(groups: Container[int], mark: str) -> list[int]:
    """The processes of some sessions, and those with a mark of a run directory; but this one."""
    here = os.getpid()
    return [
        pid
        for pid, found in kernel.processes()
        if pid != here and found.state != "Z" and (found.session in groups or marks.is_under(pid, mark))
    ]

"""A forked child that runs one function and tells its parent about it, a line of JSON at a time.

It hears no signal that is meant for the server, dies with its parent, leaves no core, and writes every Python stack to a
file of its own when it is told to (SIGABRT) or crashes.
"""

from __future__ import annotations

import atexit
import faulthandler
import math
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from prefork.processes import child

Say = Callable[[dict[str, Any]], None]

_TICK = 0.2
"""Seconds after which it is asked whether it lives at all."""


class Offspring:
    """The child, forked by the constructor. `run` is called in it with a function that sends a line to the parent.

    stacks: every Python stack of the child, if it has written them, once it has ended.
    """

    def __init__(self, run: Callable[[Say], None]) -> None:
        self.status: int | None = None
        self.stacks = ""
        self._pending = b""
        self._lines, writer = os.pipe()
        self._memory = os.memfd_create("prefork-stacks")
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        with child.signals_held():
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self._lines)
                _live(run, parent, writer, self._memory)
        os.close(writer)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says, until it ends."""
        while (line := self.line()) is not None:
            yield line

    def line(self, deadline: float = math.inf) -> dict[str, Any] | None:
        """The next line that it says; None once it has ended. Raises TimeoutError at a time of the monotonic clock."""
        while b"\n" not in self._pending:
            left = min(deadline - time.monotonic(), _TICK)
            if select.select([self._lines], [], [], max(0.0, left))[0]:
                data = os.read(self._lines, 1 << 16)
                if not data:
                    return None
                self._pending += data
            elif not self._is_alive():  # a process that it started may keep the pipe open
                return None
            elif time.monotonic() >= deadline:
                raise TimeoutError
        line, _, self._pending = self._pending.partition(b"\n")
        return dict(msgspec.json.decode(line))

    def end(self, how: signal.Signals = signal.SIGKILL, patience: float = 5.0) -> int:
        """Have it end, by force if it does not in time, and return its exit code; negative for a signal."""
        deadline = time.monotonic() + patience
        self.signal(how)
        while self._is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        if self.status is None:
            self.signal(signal.SIGKILL)
            self._wait(0)
        os.close(self._lines)
        self.stacks = os.pread(self._memory, 1 << 20, 0).decode(errors="replace")
        os.close(self._memory)
        return os.waitstatus_to_exitcode(self.status or 0)

    def signal(self, how: signal.Signals) -> None:
        """Send it a signal, if it has not been reaped."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, how)

    def _is_alive(self) -> bool:
        if self.status is None:
            self._wait(os.WNOHANG)
        return self.status is None

    def _wait(self, flags: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, flags)
        except ChildProcessError:  # the arbiter reaps whatever ends
            pid, status = self.pid, 0
        if pid:
            self.status = status


def _live(run: Callable[[Say], None], parent: int, lines: int, stacks: int) -> None:
    status = 1
    try:
        child.settle()
        child.die_with(parent, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable(stacks, all_threads=True)
        run(lambda line: _say(lines, line))
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever the user's code raises, the parent's stack must not go on here
        traceback.print_exc()
    finally:
        with suppress(Exception):
            atexit._run_exitfuncs()  # noqa: SLF001 - as in a worker: processes that the user's code started end by this
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _say(lines: int, line: dict[str, Any]) -> None:
    data = msgspec.json.encode(line) + b"\n"
    while data:
        data = data[os.write(lines, data) :]

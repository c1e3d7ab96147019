"""The user's `custom_service` in a process of its own: forked from the arbiter, restarted when it dies, gone when it goes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from prefork.backoff import Backoff
from prefork.processes import child


class ServiceProcess:
    """One service. `run` is called in the child, with everything that it needs to begin, and blocks.

    A service that returns has ended and stays so, unless `ends` is false; one that fails is started again, later each time.
    """

    def __init__(
        self,
        run: Callable[[], None],
        log: Any,
        clock: Callable[[], float] = time.monotonic,
        name: str = "custom_service",
        *,
        ends: bool = True,
    ) -> None:
        self._run = run
        self._name = name
        self._ends = ends
        self._log = log
        self._backoff = Backoff(clock=clock)
        self._wanted = True
        self._restarting = False
        self.pid = 0

    @property
    def is_ending(self) -> bool:
        """Whether it runs and is not to run any more."""
        return self.pid != 0 and not self._wanted

    def keep(self) -> None:
        """Start it if it is to run, does not, and its time has come."""
        if self._wanted and not self.pid and self._backoff.is_over:
            self._start()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Signal it, and do not start it again."""
        self._wanted = False
        self.tell(how)

    def restart(self) -> None:
        """End it, for `keep` to start it with its code as it is now."""
        self._wanted = True
        self._restarting = self.pid != 0
        self.tell(signal.SIGTERM)

    def tell(self, how: signal.Signals) -> None:
        """Signal it, if it runs."""
        if self.pid:
            os.kill(self.pid, how)

    def bury(self, pid: int, status: int) -> bool:
        """Whether the child that was reaped is this one."""
        if pid != self.pid:
            return False
        self.pid = 0
        restarting, self._restarting = self._restarting, False
        code = os.waitstatus_to_exitcode(status)
        if not self._wanted or restarting:
            return True
        if code == 0 and self._ends:
            self._wanted = False
            self._log.info("%s has ended", self._name)
        else:
            delay = self._backoff.fail()
            self._log.error("%s (pid %d) died with %d; it starts again in %.1f s", self._name, pid, code, delay)
        return True

    def _start(self) -> None:
        arbiter = os.getpid()
        with child.signals_held():
            self.pid = os.fork()
            if self.pid == 0:
                self._live(arbiter)
        self._log.info("%s runs (pid %d)", self._name, self.pid)

    def _live(self, arbiter: int) -> None:
        status = 1
        try:
            child.settle()
            child.die_with(arbiter, signal.SIGKILL)
            self._run()
            status = 0
        except Exception:  # noqa: BLE001 - whatever the user's code raises
            self._log.exception("%s failed", self._name)
        sys.exit(status)

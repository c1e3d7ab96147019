"""The supervisor of the models, as a child of the arbiter: started anew when it dies, ended after the workers."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import msgspec

from prefork import hosting
from prefork.errors import PreforkError
from prefork.processes.gunicorn_app import Application
from prefork.processes.service_process import ServiceProcess
from prefork.supervisor.client import SupervisorControl


class Supervision:
    """Keeps a supervisor where models run in processes of their own; elsewhere it does nothing.

    listeners: those of the arbiter at any moment, which the supervisor must not keep open.
    """

    def __init__(self, app: Application, log: Any, listeners: Any) -> None:
        self._app = app
        self._log = log
        self._listeners = listeners
        self._process = ServiceProcess(self._run, log, name="the supervisor of the models", ends=False)

    @property
    def is_ending(self) -> bool:
        """Whether it runs and is not to run any more."""
        return self._process.is_ending

    def take(self) -> None:
        """Make the run directory, and have it for this server alone. Raises SettingError."""
        if self._app.is_hosted:
            self._app.run_directory.open()
            self._app.ledger.run_dir = self._app.run_directory.path

    def close(self) -> None:
        """Give the run directory up, once the supervisor has ended."""
        self._app.run_directory.close()

    def keep(self) -> None:
        """Start it, also again if it has died."""
        if self._app.run_directory.path:
            self._process.keep()

    def reload(self) -> None:
        """Have every model loaded anew, beside the one that serves."""
        if not self._process.pid:
            return
        try:
            SupervisorControl(self._app.run_directory.path).begin_reload()
        except PreforkError as error:
            self._log.error("the models are not reloaded: %s", error.message)

    def bury(self, pid: int, status: int) -> bool:
        """Whether the child that was reaped is the supervisor."""
        return self._process.bury(pid, status)

    def announce(self) -> None:
        """Tell it that the server is about to stop: nobody is to wait for a load any more."""
        self._process.tell(signal.SIGUSR1)

    def stop(self, how: signal.Signals) -> None:
        """Tell it to end its processes, and itself."""
        self._process.stop(how)

    def _run(self) -> None:
        """In the child, and in a session of its own, which no signal to the server's group reaches: become a program of its own, which is told its orders in memory that it inherits."""
        os.setsid()
        for each in self._listeners():
            each.close()
        self._app.metrics_port.close()
        lock = self._app.run_directory.lock
        os.set_inheritable(lock, True)  # noqa: FBT003 - the signature is os's
        told = hosting.orders(self._app.settings, self._app.run_directory.path, os.getppid(), lock)
        # No pipe: it might not hold the whole of it before there is a reader.
        orders = os.memfd_create("orders", 0)
        os.write(orders, msgspec.json.encode(told) + b"\n")
        os.lseek(orders, 0, os.SEEK_SET)
        os.execv(sys.executable, [sys.executable, "-P", "-m", "prefork.supervisor", str(orders)])  # noqa: S606 - itself

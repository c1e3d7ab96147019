"""gunicorn's workers with a model in them: loaded once, after the fork, and only then reachable.

Until its model is loaded a worker has nothing to finish, and TERM simply ends it. Then it opens the port (or finds it
open), tells the arbiter, and signals mean what gunicorn's users expect. It never leaves on its own account: when it has
answered `max_requests` requests, or sees that the code has changed, it asks for a replacement and serves until told to go.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

from prefork import forks
from prefork.errors import ModelLoadError
from prefork.metrics import Account
from prefork.processes import balance, blame, child, listener, stacks
from prefork.processes.board_crew import BoardCrew
from prefork.processes.due import Term
from prefork.processes.spread import quota
from prefork.processes.watch import Watch

ADDRESS_TAKEN = 5
"""The exit status of a worker that could not open the port."""

LINGER = 0.5
"""Seconds for which a worker that leaves keeps an idle connection, for the request that its client may be sending."""

_NEVER = sys.maxsize
_TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that mean something to a worker, and nothing of it to what its model forks."""


class Serving(Worker):
    """What every worker class does; it stands before gunicorn's class among the bases.

    In the arbiter the same object is the record of the worker that was forked: `due` says why it is to be replaced,
    `leaving` why it was told to go, both empty until then. `overdue` is when it was told to say where it loads for so long.
    """

    quota = _NEVER
    max_requests: int
    _answered = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.slot: balance.Slot = self.app.board.take()
        self.account: Account = self.app.ledger.take()
        self.max_requests = _NEVER
        settings = self.app.settings
        if settings.max_requests:
            self.quota = quota(self.age, settings.max_requests, settings.max_requests_jitter)
        self.spawned = time.monotonic()
        self.term = Term()
        self.due = ""
        self.leaving = ""
        self.deadline = 0.0
        self.overdue = 0.0

    @property
    def nr(self) -> int:
        """Requests answered; gunicorn's workers count it up."""
        return self._answered

    @nr.setter
    def nr(self, count: int) -> None:
        self._answered = count
        if count == self.quota:
            self.slot.say(balance.SPENT)
            self.wake_arbiter()

    def wake_arbiter(self) -> None:
        """Have the arbiter look at the board now, rather than within a second."""
        if os.getppid() == self.ppid:
            with suppress(PermissionError):  # under `user` the worker may not
                os.kill(self.ppid, signal.SIGCHLD)

    def init_process(self) -> None:
        """Begin in the child; returns when the worker leaves."""
        child.settle()
        super().init_process()

    def init_signals(self) -> None:
        """Nothing yet: `run` takes the signals once there is something to finish."""

    def load_wsgi(self) -> None:
        """Load the model. What it raises is the end of this worker, with its traceback in the log."""
        # No TERM: a model that computes would keep an orphan with the port, one that hangs with the lock of the interpreter for ever.
        child.die_with(self.ppid, signal.SIGKILL)
        stacks.dump_to(self.tmp.fileno())
        begun = time.monotonic()
        forks.watch()
        forks.give_signals_back(_TAKEN)
        try:
            self.front = self.app.serve(self.account)
        except BaseException as error:  # noqa: BLE001 - a constructor may call sys.exit() too
            forks.end(error)
            self._mourn(error)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        self.front.attach(BoardCrew(self.slot.board, self._report_stuck, self._ask_recycle))
        self.wsgi = self.asgi = self.front.app
        seconds = time.monotonic() - begun
        self.log.info("%s loaded in %.2f s, %d MB resident", self.front.name, seconds, _resident() >> 20)
        if self.app.settings.reload:
            Watch(self._see_change, self.cfg.reload_extra_files or ()).start()

    def run(self) -> None:
        """Open the port and serve until told to leave."""
        self.take_signals()
        self._open()
        self.serve()
        self.finish()
        self.front.close()

    def take_signals(self) -> None:
        """Have signals mean what gunicorn's users expect."""
        super().init_signals()
        stacks.dump_at_the_end(self.log.error_log)

    def serve(self) -> None:
        """gunicorn's own loop, until the worker is told to leave."""
        super().run()

    def finish(self) -> None:
        """Answer what is left when gunicorn's own loop has ended."""

    def drain(self) -> bool:
        """Say that this worker accepts no more; whether it is to take those who wait, as the last to come by."""
        self.slot.unsay(balance.ACCEPTING)
        return bool(self.slot.board.stopping)

    def _open(self) -> None:
        try:
            listener.limit_silence(self.sockets, self.app.settings.read_timeout)
            listener.listen(self.sockets, self.cfg.backlog)
        except listener.AddressError as error:
            self.log.error("%s", error)
            sys.exit(ADDRESS_TAKEN)
        self.slot.board.summary = self.front.summary
        service = balance.SERVICE if self.front.custom_service is not None else 0
        self.slot.loaded(balance.ACCEPTING | service)
        self.wake_arbiter()

    def _mourn(self, error: BaseException) -> None:
        is_first = self.slot.board.is_first_failure()
        code = blame.of_users_code(error)
        if is_first:
            text = str(error) if isinstance(error, ModelLoadError) else "the model cannot be loaded"
            self.log.error("%s", text, exc_info=code)
        elif code is not None:
            self.log.error("the model cannot be loaded here either: %s", error)

    def _ask_recycle(self) -> None:
        self.slot.ask()
        self.wake_arbiter()

    def _report_stuck(self) -> None:
        self.log.error("a model thread does not come back; this worker is replaced. What every thread does:")
        stacks.dump(self.log.error_log)
        self.slot.say(balance.STUCK)
        self.wake_arbiter()

    def _see_change(self, name: str) -> None:
        self.log.info("%s has changed", name)
        self.slot.changed()
        self.wake_arbiter()


def _resident() -> int:
    """Bytes of memory that this process has resident."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

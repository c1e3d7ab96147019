"""The root process: binds, forks workers, replaces them one at a time without a gap, and ends them all.

A worker that is to go (HUP, `max_requests`, changed code) goes only once its replacement has loaded and accepts; when the
replacement cannot load, the old one stays. While the server starts, a model that cannot load ends it with status 3.
The arbiter reacts to signals, also to SIGCHLD, by which a worker asks it to look at the board; else it looks once a second.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gunicorn.arbiter
from gunicorn import sock
from gunicorn.errors import HaltServer

import prefork
from prefork import application, balance, child, gunicorn_app, roster
from prefork.backoff import Backoff
from prefork.errors import ModelLoadError, StartupError
from prefork.service_process import ServiceProcess
from prefork.settings import Settings
from prefork.worker import ADDRESS_TAKEN

_QUICK = 1.0
"""Seconds that INT and QUIT leave a worker before it is killed."""

_MARGIN = 1.0
"""Seconds past `graceful_timeout`, by which a worker has ended its requests itself, before it is killed."""

_STEADY = 10.0
"""Seconds after which the death of a worker is no sign that its replacement will die as well."""

_CODE = {"HUP", "its code has changed"}


def run(settings: Settings, wiring: gunicorn_app.Wiring = application) -> int:
    """Serve until told to stop; the exit status of the process: 0, 1 for the address, 2 for a setting, 3 for the model."""
    here = os.getpid()
    gunicorn_app.fit()
    try:
        Arbiter(gunicorn_app.Application(settings, wiring)).run()
    except StartupError as error:
        sys.stderr.write(f"prefork: {error}\n")
        return error.exit_code
    except RuntimeError as error:  # gunicorn's own, of the pidfile for one
        sys.stderr.write(f"prefork: {error}\n")
        return 1
    except SystemExit as leaving:
        if os.getpid() != here:
            raise
        return leaving.code & 0xFF if isinstance(leaving.code, int) else 0
    return 0


class _Stopped(BaseException):
    """A signal to stop came while the model was under construction."""


class Arbiter(gunicorn.arbiter.Arbiter):
    """gunicorn's arbiter, with a board that its workers write on."""

    LISTENERS: list[Any]
    WORKERS: dict[int, Any]
    reexec_pid: int

    def __init__(self, app: gunicorn_app.Application) -> None:
        self._backoff = Backoff(1.0 if app.settings.reload else 30.0)
        self._is_ready = False
        self._is_starting = True
        self._is_stopping = False
        super().__init__(app)
        self.WORKERS = {}
        self.START_CTX["args"] = [
            sys.executable,
            *sys.orig_argv[1:],
        ]  # sys.argv would make `-m prefork` a path in itself
        self._service = ServiceProcess(self._serve_custom, self.log)

    def start(self) -> None:
        """Bind, and build the model if it is to be built here. Raises AddressError."""
        settings = self.app.settings
        self.log.info(
            "prefork %s: %d %s workers serve %s",
            prefork.__version__,
            settings.workers,
            settings.worker_class,
            settings.model,
        )
        for note in self.app.notes:
            self.log.warning("%s", note)
        try:
            super().start()
        except StartupError:
            if self.pidfile is not None:
                self.pidfile.unlink()
            raise
        self.app.bound(self.LISTENERS)
        if settings.preload_app:
            self._preload()

    def spawn_worker(self) -> int:
        """Fork a worker."""
        with child.signals_held():
            pid: int = super().spawn_worker()
        self.WORKERS[pid].slot.pid = pid
        return pid

    def manage_workers(self) -> None:
        """Fork who is missing and tell those to go who are to go."""
        self._read_board()
        missing, leaving = roster.plan(self.WORKERS.values(), self.num_workers)
        for worker in leaving:
            self._retire(worker)
        if self._backoff.is_over:
            for _ in range(missing):
                self.spawn_worker()
        now = time.monotonic()
        for worker in list(self.WORKERS.values()):
            if worker.leaving and now > worker.deadline:
                self.kill_worker(worker.pid, signal.SIGKILL)

    def handle_hup(self) -> None:
        """HUP: replace every worker, and the user's own service."""
        self.reload()

    def reload(self) -> None:
        """Have every worker replaced, one after the other, with the code as it is now."""
        self.log.info("HUP: every worker is replaced")
        self._stats["reloads"] += 1
        self.log.reopen_files()
        self.cfg.on_reload(self)
        for worker in self.WORKERS.values():
            worker.due = worker.due or "HUP"
        if self._service.pid:
            self._service.restart()

    def reap_workers(self) -> None:
        """Bury every child that has ended. Raises HaltServer when that ends the server."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._bury(pid, status)

    def stop(self, graceful: bool = True) -> None:  # noqa: FBT001, FBT002 - gunicorn's signature
        """End every child: let it finish what is in flight for `graceful_timeout`, or hardly at all. None is left."""
        if not self._is_stopping:
            self.log.info("stopping%s", "" if graceful else " at once")
        self._is_stopping = True
        if graceful:
            self.app.board.stop()
        keep_path = self.reexec_pid or self.master_pid or self.systemd or self.cfg.reuse_port
        sock.close_sockets(self.LISTENERS, not keep_path)
        self.LISTENERS = []
        self._tell_all(signal.SIGTERM if graceful else signal.SIGQUIT)
        self._wait(self.app.settings.graceful_timeout + _MARGIN if graceful else _QUICK)
        self.kill_workers(signal.SIGKILL)
        self._service.stop(signal.SIGKILL)
        self._wait(_QUICK)

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """Stop and leave the process with a status."""
        if reason is not None:
            self.log.error("%s", reason)
        self._stop_control_server()
        self.stop(graceful=exit_status == 0)
        if self.pidfile is not None:
            self.pidfile.unlink()
        self.cfg.on_exit(self)
        self.log.info("stopped")
        sys.exit(exit_status)

    def _preload(self) -> None:
        def interrupt(*_: Any) -> None:
            raise _Stopped

        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(each, interrupt)
        try:
            self.app.preload()
        except _Stopped:
            self.halt()
        except BaseException as error:
            self.log.error("the model cannot be built", exc_info=error)
            self.halt("nothing can be served", ModelLoadError.exit_code)
        self.init_signals()

    def _serve_custom(self) -> None:
        for listener in self.LISTENERS:
            listener.close()
        self.app.serve_custom()

    def _read_board(self) -> None:
        workers = self.WORKERS.values()
        for worker in workers:
            if worker.slot.changes > worker.changes:
                worker.changes = worker.slot.changes
                worker.due = "its code has changed"
            if worker.slot.has(balance.SPENT) and not worker.due:
                worker.due = "max_requests"
            if worker.slot.has(balance.SERVICE):
                self._service.keep()
        loaded = [worker.slot.has(balance.LOADED) for worker in workers]
        if any(loaded) and not self._is_ready:
            self._is_ready = True
            self.log.info("ready at %s\n%s", ", ".join(map(str, self.LISTENERS)), self.app.board.summary)
        if self._is_starting and len(loaded) >= self.num_workers and all(loaded):
            self._is_starting = False

    def _retire(self, worker: Any) -> None:
        worker.leaving = worker.due or "there is one too many"
        worker.deadline = time.monotonic() + self.app.settings.graceful_timeout + _MARGIN
        self.log.info("worker %d leaves: %s", worker.pid, worker.leaving)
        self.kill_worker(worker.pid, signal.SIGTERM)

    def _bury(self, pid: int, status: int) -> None:
        if pid == self.reexec_pid:
            self.reexec_pid = 0
        if pid == self.dirty_arbiter_pid:
            self.handle_dirty_arbiter_exit(pid, status)
        if self._service.bury(pid, status) or pid not in self.WORKERS:
            return  # as process 1 we also reap children that are nobody's
        worker = self.WORKERS.pop(pid)
        had_loaded = worker.slot.has(balance.LOADED)
        worker.slot.free()
        worker.tmp.close()
        self.cfg.child_exit(self, worker)
        if self._is_stopping or worker.leaving:
            self.log.debug("worker %d has left", pid)
        elif had_loaded:
            self._miss(worker, status)
        else:
            self._mourn(worker, status)

    def _miss(self, worker: Any, status: int) -> None:
        """A worker died that had served."""
        self.log.error("worker %d %s; it is replaced", worker.pid, _fate(status))
        if time.monotonic() - worker.spawned < _STEADY:
            self._backoff.fail()

    def _mourn(self, worker: Any, status: int) -> None:
        """A worker died before it had loaded."""
        how = f"worker {worker.pid} {_fate(status)} before its model had loaded"
        if os.waitstatus_to_exitcode(status) == ADDRESS_TAKEN:
            raise HaltServer("another process opened the port first", 1)
        if not self._is_ready or (self._is_starting and not os.WIFSIGNALED(status)):
            raise HaltServer(how, ModelLoadError.exit_code)
        self.app.board.forget_failure()
        delay = self._backoff.fail()
        self.log.error("%s; the next try is in %.1f s", how, delay)
        reloading = [each for each in self.WORKERS.values() if each.due in _CODE and not each.leaving]
        for each in reloading:
            each.due = ""
        if reloading:
            self.log.error("the reload is given up: the workers of before go on")

    def _tell_all(self, how: signal.Signals) -> None:
        for worker in list(self.WORKERS.values()):
            # One that loads has nothing to finish: TERM ends it at once, where QUIT would dump core.
            self.kill_worker(worker.pid, how if worker.slot.has(balance.LOADED) else signal.SIGTERM)
        self._service.stop()

    def _wait(self, seconds: float) -> None:
        """Wait until every child has ended, for at most so long; INT and QUIT shorten the wait."""
        deadline = time.monotonic() + seconds
        self.reap_workers()
        while (self.WORKERS or self._service.pid) and (left := deadline - time.monotonic()) > 0:
            if {signal.SIGINT, signal.SIGQUIT} & set(self.wait_for_signals(timeout=left)):
                self._tell_all(signal.SIGQUIT)
                deadline = min(deadline, time.monotonic() + _QUICK)
            self.reap_workers()


def _fate(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"left with status {code}"
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    return f"was killed by {name}{' (out of memory?)' if -code == signal.SIGKILL else ''}"

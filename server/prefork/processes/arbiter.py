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
from prefork import application, metrics
from prefork.errors import ModelLoadError, PreloadRefused, StartupError
from prefork.guard.place import place
from prefork.metrics import families
from prefork.model.ownership import Ownership
from prefork.processes import balance, blame, child, due, ending, fate, gunicorn_app, listener
from prefork.processes.foreman import MARGIN, Foreman
from prefork.processes.service_process import ServiceProcess
from prefork.processes.supervision import Supervision
from prefork.processes.worker import ADDRESS_TAKEN
from prefork.settings import Settings

_QUICK = 1.0
"""Seconds that INT and QUIT leave a worker before it is killed."""

_TO_KILL = 6.0
"""Seconds that the supervisor needs for ending what does not end by itself."""

_IMPATIENT = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}
"""Signals that end a wait for what is in flight: whoever sends a second one has no time."""


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
        return ending.ended(leaving.code & 0xFF if isinstance(leaving.code, int) else 0)
    return 0


class Arbiter(gunicorn.arbiter.Arbiter):
    """gunicorn's arbiter, with a board that its workers write on."""

    LISTENERS: list[Any]
    WORKERS: dict[int, Any]
    reexec_pid: int

    def __init__(self, app: gunicorn_app.Application) -> None:
        self._foreman = Foreman(app.settings)
        self._ownership = Ownership.of(app.settings.model, app.settings.model_dir)
        self._is_stopping = False
        super().__init__(app)
        self.WORKERS = {}
        self.START_CTX["args"] = [
            sys.executable,
            *sys.orig_argv[1:],
        ]  # sys.argv would make `-m prefork` a path in itself
        self._service = ServiceProcess(self._serve_custom, self.log)
        self._scraped = ServiceProcess(self._serve_metrics, self.log, name="the metrics' port")
        self._models = Supervision(app, self.log, lambda: self.LISTENERS)
        self._services = (self._service, self._scraped, self._models)

    def start(self) -> None:
        """Bind, and build the model if it is to be built here. Raises AddressError, and SettingError for the run directory."""
        settings = self.app.settings
        self._models.take()
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
            self._open_metrics()
        except BaseException as error:
            if isinstance(error, StartupError) and self.pidfile is not None:
                self.pidfile.unlink()
            self._models.close()
            raise
        self._models.keep()
        self.app.bound(self.LISTENERS)
        if settings.preload_app and not self.app.is_hosted:
            self._preload()

    def spawn_worker(self) -> int:
        """Fork a worker."""
        with child.signals_held():
            pid: int = super().spawn_worker()
        self.WORKERS[pid].slot.pid = pid
        return pid

    def manage_workers(self) -> None:
        """Do what there is to do now: fork who is missing, tell those to go who are to go."""
        workers = self.WORKERS.values()
        orders = self._foreman.orders(workers, self.num_workers)
        if orders.is_ready:
            where = ", ".join(map(str, self.LISTENERS)) or self.app.settings.bind
            self.log.info("ready at %s\n%s", where, self.app.board.summary)
        self._keep_services()
        for worker in orders.leave:
            self._retire(worker)
        for _ in range(orders.fork):
            self.spawn_worker()
        for worker, how in orders.signals:
            self.kill_worker(worker.pid, how)
        for worker in workers:
            worker.slot.condemn(worker.due or worker.leaving, leaving=bool(worker.leaving))
        if self.app.board.trouble and not self._foreman.course.trouble:
            self.app.board.trouble = ""

    def handle_hup(self) -> None:
        """HUP: replace every worker, and the user's own service."""
        self.reload()

    def reload(self) -> None:
        """Have every worker replaced, one after the other, with the code as it is now."""
        self.log.info("HUP: every worker is replaced")
        self._stats["reloads"] += 1
        self.log.reopen_files()
        self.cfg.on_reload(self)
        if self.app.is_hosted:
            self._models.reload()
        elif self.app.settings.preload_app and not self._rebuild():
            return
        due.demand(self.WORKERS.values(), due.HUP)
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
        self._models.announce()
        if graceful:
            graceful = self._drain()
            self.app.board.stop()
        others_have_it = self.reexec_pid or self.master_pid or self.systemd
        if not others_have_it:
            listener.shut_out(self.LISTENERS)
        keep_path = others_have_it or self.cfg.reuse_port
        sock.close_sockets(self.LISTENERS, not keep_path)
        self.LISTENERS = []
        self._tell_all(signal.SIGTERM if graceful else signal.SIGQUIT)
        self._wait(self.app.settings.graceful_timeout + MARGIN if graceful else _QUICK)
        self.kill_workers(signal.SIGKILL)
        self._service.stop(signal.SIGKILL)
        self._scraped.stop(signal.SIGKILL)
        self._models.stop(signal.SIGTERM)
        self._wait(self.app.settings.graceful_timeout + _TO_KILL if graceful else _TO_KILL)
        self._models.stop(signal.SIGKILL)
        self._wait(_QUICK)
        self._models.close()

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
        try:
            with ending.interruptible(self.init_signals):
                self.app.preload()
        except ending.Stopped:
            self.halt()
        except PreloadRefused as refused:
            self.halt(str(refused), refused.exit_code)
        except BaseException as error:
            text = str(error) if isinstance(error, ModelLoadError) else "the model cannot be built"
            self.log.error("%s", text, exc_info=blame.of_users_code(error))
            self.halt("nothing can be served", ModelLoadError.exit_code)

    def _rebuild(self) -> bool:
        """Build the class anew, for the workers to come; whether that was possible. Nothing else is done meanwhile."""
        try:
            with ending.interruptible(self.init_signals):
                self.app.rebuild()
        except ending.Stopped as stopped:
            self.SIG_QUEUE.put_nowait(stopped.number)
            return False
        except BaseException as error:
            how = f"the reload is given up: the workers of before go on: {error}"
            self.log.error("%s", how, exc_info=blame.of_users_code(error))
            self._foreman.course.trouble = how
            self._tell_trouble()
            return False
        return True

    def _open_metrics(self) -> None:
        if not self.app.settings.metrics_port or self.master_pid:
            return  # an arbiter that replaces another one waits until that has given the port up
        try:
            self.app.metrics_port.open()
        except StartupError:
            sock.close_sockets(self.LISTENERS)
            raise
        self._scraped.keep()

    def _serve_metrics(self) -> None:
        self.app.run_directory.let_go()
        for each in self.LISTENERS:
            each.close()
        try:
            self.app.metrics_port.serve()
        except StartupError as error:
            self.log.warning("%s", error)
            sys.exit(error.exit_code)

    def _serve_custom(self) -> None:
        for each in self.LISTENERS:
            each.close()
        self.app.serve_custom()

    def _keep_services(self) -> None:
        self._models.keep()
        if self.app.settings.metrics_port:
            self._scraped.keep()
        if any(worker.slot.has(balance.SERVICE) for worker in self.WORKERS.values()):
            self._service.keep()

    def _retire(self, worker: Any) -> None:
        metrics.count(self.app.ledger.root, families.RECYCLES, due.WORDS.get(worker.leaving, worker.leaving))
        self.log.info("worker %d leaves: %s%s", worker.pid, worker.leaving, worker.term.why)
        self.kill_worker(worker.pid, signal.SIGTERM)

    def _bury(self, pid: int, status: int) -> None:
        if pid == self.reexec_pid:
            self.reexec_pid = 0
        if pid == self.dirty_arbiter_pid:
            self.handle_dirty_arbiter_exit(pid, status)
        if any(each.bury(pid, status) for each in self._services) or pid not in self.WORKERS:
            return  # as process 1 we also reap children that are nobody's
        worker = self.WORKERS.pop(pid)
        had_loaded = worker.slot.has(balance.LOADED)
        words = worker.tmp.last_words()
        worker.slot.free()
        worker.account.free()
        worker.tmp.close()
        self.cfg.child_exit(self, worker)
        if self._is_stopping or worker.leaving:
            self.log.debug("worker %d has left", pid)
            return
        metrics.count(self.app.ledger.root, families.DEATHS, fate.cause(status))
        if had_loaded:
            self._miss(worker, status)
        else:
            self._mourn(worker, status, words)

    def _miss(self, worker: Any, status: int) -> None:
        """A worker died that had served."""
        how = fate.fate(status, silent=self.timeout if worker.aborted else 0)
        self.log.error("worker %d %s; it is replaced", worker.pid, how)
        self._foreman.course.died(worker)

    def _mourn(self, worker: Any, status: int, words: str) -> None:
        """A worker died before it had loaded. words: its stacks, where it has written them."""
        if os.waitstatus_to_exitcode(status) == ADDRESS_TAKEN:
            raise HaltServer("another process opened the port first", 1)
        if words:
            self.log.error("what every thread of worker %d was at:\n%s", worker.pid, words)
        where = place(words, self._ownership)
        limit = self.app.settings.load_timeout if worker.overdue else 0
        how = f"worker {worker.pid} {fate.before_loading(status, where, limit)}"
        delay = self._foreman.course.failed(how, by_chance=os.WIFSIGNALED(status) and not worker.overdue)
        if delay is None:
            raise HaltServer(how, ModelLoadError.exit_code)
        self.app.board.forget_failure()
        self._tell_trouble()
        if due.give_up_reload(self.WORKERS.values()):
            self.log.error("%s; the reload is given up: the workers of before go on", how)
        else:
            self.log.error("%s; the next try is in %.1f s", how, delay)

    def _tell_trouble(self) -> None:
        metrics.count(self.app.ledger.root, families.FAILED)
        self.app.board.trouble = self._foreman.course.trouble

    def _drain(self) -> bool:
        """Let the workers say that they are not ready, and answer, for `drain_grace`; whether nobody was impatient."""
        self.app.board.drain()
        deadline = time.monotonic() + self.app.settings.drain_grace
        while self.WORKERS and listener.is_open(self.LISTENERS) and (left := deadline - time.monotonic()) > 0:
            if _IMPATIENT & set(self.wait_for_signals(timeout=left)):
                return False
            self.reap_workers()
        return True

    def _tell_all(self, how: signal.Signals) -> None:
        for worker in list(self.WORKERS.values()):
            # One that loads has nothing to finish: TERM ends it at once, where QUIT would dump core.
            self.kill_worker(worker.pid, how if worker.slot.has(balance.LOADED) else signal.SIGTERM)
        self._service.stop()
        self.kill_dirty_arbiter(how)

    def _wait(self, seconds: float) -> None:
        """Wait until every child has ended, for at most so long; another signal to stop shortens the wait."""
        deadline = time.monotonic() + seconds
        self.reap_workers()
        while (self.WORKERS or self.dirty_arbiter_pid or any(each.is_ending for each in self._services)) and (
            left := deadline - time.monotonic()
        ) > 0:
            if _IMPATIENT & set(self.wait_for_signals(timeout=left)):
                self._tell_all(signal.SIGQUIT)
                deadline = min(deadline, time.monotonic() + _QUICK)
            self.reap_workers()

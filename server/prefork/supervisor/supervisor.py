"""The supervisor's own life: it cleans up after the one before, loads, serves its control socket, and leaves nothing behind.

USR1 says that TERM is to come once the workers have drained: no load is waited for, or begun, any more. TERM ends it once everything
has drained, a second one at once. The kernel sends TERM as well when the arbiter dies: then there is
nobody to drain for.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
from pathlib import Path

from prefork.errors import StartupError
from prefork.repository.repository import Repository
from prefork.supervisor import kernel, strays
from prefork.supervisor.control import Control
from prefork.supervisor.lifecycle import Lifecycle
from prefork.supervisor.means import Means
from prefork.supervisor.orders import Orders
from prefork.supervisor.publishing import RunDirectory, write
from prefork.supervisor.roster import Roster
from prefork.supervisor.source import Shelves, Singles, Source

_log = logging.getLogger("prefork.supervisor")
_SOON = 2.0
"""Seconds that an earlier supervisor of the same run directory has to be gone, and killed processes to be reaped."""


class Supervisor:
    """One supervisor. roster: of its run directory, and empty. program: see `Means`."""

    def __init__(self, orders: Orders, roster: Roster, program: tuple[str, ...]) -> None:
        self._orders = orders
        self._run = RunDirectory(orders.run_dir)
        self._roster = roster
        self._lifecycle = Lifecycle(Means(orders, roster, program=program), self._run, _source(orders))
        self._control = Control(Path(orders.run_dir, "supervisor.sock"), self._lifecycle)
        self._ending = asyncio.Event()
        self._hurry = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def serve(self) -> None:
        """Until TERM. Raises StartupError where another supervisor has the run directory."""
        lock = await self._lock()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._told_to_end)
        loop.add_signal_handler(signal.SIGUSR1, self._control.give_up_loads)
        loop.add_signal_handler(signal.SIGCHLD, strays.bury_all, self._roster)
        again = await self._take_over()
        await self._control.open()
        self._tasks.append(asyncio.ensure_future(self._lifecycle.begin(again=again)))
        if self._orders.control == "poll":
            self._tasks.append(asyncio.ensure_future(self._lifecycle.follow()))
        await self._until_the_end()
        await self._end()
        # The loop gives TERM its own meaning back when it closes: one that comes then must not look like a crash.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.close(lock)

    async def _until_the_end(self) -> None:
        end = asyncio.ensure_future(self._ending.wait())
        waiting = {end, *self._tasks}
        while not end.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done - {end}:
                each.result()  # what is raised here is a fault of ours: the arbiter starts another supervisor

    async def _lock(self) -> int:
        if self._orders.lock >= 0:
            os.set_inheritable(self._orders.lock, False)  # noqa: FBT003 - the signature is os's
            return self._orders.lock
        descriptor = os.open(self._orders.run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        until = asyncio.get_running_loop().time() + _SOON
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if asyncio.get_running_loop().time() > until:
                    raise StartupError(f"run_dir: another server uses {self._orders.run_dir}") from None
                await asyncio.sleep(0.05)
            else:
                return descriptor

    async def _take_over(self) -> bool:
        """Clean up after a supervisor that has died; whether it was this server's, so that what it had loaded is to be loaded."""
        if left := await self._roster.end_leftovers():
            _log.warning("%d processes of an earlier supervisor were killed", left)
        found = kernel.fields(self._orders.parent)
        owner = f"{kernel.boot()} {self._orders.parent} {found.start if found else 0}\n".encode()
        file = self._run.path / "owner"
        is_same = file.exists() and file.read_bytes() == owner
        self._run.clear(all_of_it=not is_same)
        write(file, owner)
        return is_same

    @property
    def _is_orphan(self) -> bool:
        return bool(self._orders.parent) and os.getppid() != self._orders.parent

    def _told_to_end(self) -> None:
        if self._is_orphan:
            _log.error("the arbiter has gone: everything ends now")
        if self._is_orphan or self._ending.is_set():
            self._hurry.set()
        self._ending.set()

    async def _end(self) -> None:
        shelves = list(self._lifecycle.shelves.values())
        for each in self._tasks:
            each.cancel()
        drain = asyncio.ensure_future(self._drain())
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({drain, hurry}, return_when=asyncio.FIRST_COMPLETED)
        if not drain.done():
            for shelf in shelves:
                shelf.kill_now()
            await asyncio.wait({drain}, timeout=_SOON)
        for task in (drain, hurry):
            task.cancel()
        await asyncio.wait({drain, hurry, *self._tasks})
        self._run.clear()
        if self._orders.is_temporary and self._is_orphan:
            self._run.remove()
        _log.info("everything is unloaded")

    async def _drain(self) -> None:
        await self._control.close()
        await asyncio.wait(self._tasks)
        await asyncio.gather(*(each.stop(self._orders.graceful_timeout) for each in self._lifecycle.shelves.values()))


def _source(orders: Orders) -> Source:
    singles = Singles(orders.singles)
    if not orders.repositories:
        return singles
    from prefork.runtimes.shelf import known  # takes 50 ms, which a single model need not wait for

    return Shelves(singles, Repository(orders.repositories, known(), orders.config_name))

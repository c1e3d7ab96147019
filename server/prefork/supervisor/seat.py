"""One place of a generation: it always has a process, or is about to have one again.

A process that dies is replaced, later each time. One that is stuck, or is to be renewed, goes once the next one is ready.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from prefork.remote.charge import Card
from prefork.repository.config import Device
from prefork.supervisor.death import size
from prefork.supervisor.memory import resident
from prefork.supervisor.process import InstanceProcess, LoadFailed
from prefork.supervisor.restarts import Restarts

_log = logging.getLogger("prefork.supervisor")
_HANGING = 0.5
"""Seconds that a process which could not load has to leave by itself, and to write its stacks."""


class Starter(Protocol):
    """Starts a process for a place."""

    def __call__(self, place: int, device: Device | None, on_stuck: Callable[[], None]) -> InstanceProcess:
        """Start it. Raises LoadFailed."""
        ...


class Seat:
    """A place. changed: called when a process has become ready or was lost. is_single: a stuck process has nothing else to do."""

    def __init__(
        self,
        place: int,
        device: Device | None,
        start: Starter,
        changed: Callable[[], None],
        *,
        load_timeout: float,
        drain_timeout: float,
        is_single: bool,
    ) -> None:
        self.place = place
        self.device = device
        self.process: InstanceProcess | None = None
        self.incoming: InstanceProcess | None = None
        self.reason = ""
        self.trace = ""
        self.last_death = ""
        self.restarts = Restarts()
        self._start = start
        self._changed = changed
        self._load_timeout = load_timeout
        self._drain_timeout = drain_timeout
        self._is_single = is_single
        self._renew = asyncio.Event()
        self._renewals: list[asyncio.Future[None]] = []
        self._all: list[InstanceProcess] = []
        self._leaving: set[asyncio.Task[object]] = set()

    @property
    def processes(self) -> list[InstanceProcess]:
        """Those that have not ended: the one that serves, one that loads, those that were replaced and still leave."""
        self._all = [each for each in self._all if not each.ended.done()]
        return list(self._all)

    async def fill(self) -> Card:
        """Start a process and wait until it is ready; it serves then. Raises LoadFailed, with no process left of it."""
        began = time.monotonic()
        process = self.incoming = self._start(self.place, self.device, self._renew.set)
        self._all.append(process)
        try:
            card = await process.loaded(self._load_timeout)
            await process.tried(self.restarts.trial)
        except LoadFailed as error:
            await process.end(_HANGING)
            raise LoadFailed(str(error), error.trace or process.tail) from None
        except asyncio.CancelledError:
            process.kill_now()
            raise
        finally:
            self.incoming = None
        process.tell("serve")
        old, self.process = self.process, process
        self.reason = ""
        self.restarts.well()
        took, has = time.monotonic() - began, size(resident(process.pid))
        _log.info("%s: ready in %.2f s (pid %d, %s)", process.label, took, process.pid, has)
        if old is not None:
            self._retire(old)
        self._changed()
        return card

    async def keep(self) -> None:
        """Replace what dies or is to be renewed, until cancelled."""
        delay = 0.0
        while True:
            if self.process is not None and not self._renew.is_set():
                await self._until_something()
            if self.process is not None and self.process.ended.done():
                delay = self._lost(self.process)
                continue
            if delay:
                await asyncio.sleep(delay)
            self._renew.clear()
            delay = await self._refill()

    async def renew(self) -> None:
        """Have the process replaced, and wait until that is done. Raises LoadFailed where the next one cannot load."""
        done = asyncio.get_running_loop().create_future()
        self._renewals.append(done)
        self._renew.set()
        await done

    async def _until_something(self) -> None:
        assert self.process is not None
        renew = asyncio.ensure_future(self._renew.wait())
        waiting: set[asyncio.Future[Any]] = {renew, self.process.ended}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            renew.cancel()

    async def _refill(self) -> float:
        """One try; the seconds until the next one, if it failed."""
        waiting, self._renewals = self._renewals, []
        try:
            await self.fill()
        except LoadFailed as error:
            delay = self.restarts.died()
            self.reason, self.trace = f"instance {self.place} could not be replaced: {error}", error.trace
            _log.error("%s; the next try is in %.1f s", self.reason, delay)
            for each in waiting:
                each.set_exception(error)
            if self.process is None or self.process.is_stuck:
                self._renew.set()
            self._changed()
            return delay
        for each in waiting:
            each.set_result(None)
        return 0.0

    def _lost(self, process: InstanceProcess) -> float:
        self.process = None
        delay = self.restarts.died()
        self.last_death = self.reason = f"instance {self.place} (pid {process.pid}) {process.end_words}"
        self.trace = process.tail
        _log.error(
            "%s: pid %d %s; the next one starts %s",
            process.label,
            process.pid,
            process.end_words,
            _when(delay),
        )
        self._changed()
        return delay

    def _retire(self, process: InstanceProcess) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(self._see_off(process))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _see_off(self, process: InstanceProcess) -> None:
        seconds = 0.0 if process.is_stuck and self._is_single else self._drain_timeout
        if seconds:
            await process.drain(asyncio.get_running_loop().time() + seconds, whole=False)
        await (process.kill() if process.is_stuck else process.end())
        _log.info("%s: pid %d has left", process.label, process.pid)


def _when(delay: float) -> str:
    return f"in {delay:.1f} s" if delay else "now"

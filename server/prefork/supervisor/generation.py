"""One loaded copy of one version of a model: its queue, its instances in their places, its state.

It is ready once all instances are. A death costs the requests in flight; the others wait in the queue for the replacement. When a
replacement cannot load either and no instance is left, the queue is refused and the generation is FAILED, while further tries go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from prefork.errors import ModelLoadError
from prefork.remote.charge import Card
from prefork.repository.config import Device
from prefork.supervisor.means import Means
from prefork.supervisor.process import InstanceProcess, LoadFailed
from prefork.supervisor.queue import Queue
from prefork.supervisor.seat import Seat
from prefork.supervisor.source import Version
from prefork.supervisor.states import Life, State

_log = logging.getLogger("prefork.supervisor")


class Generation:
    """A copy that is being loaded or is loaded. changed: called with it when its state, or the reason for that, has changed by itself."""

    def __init__(self, version: Version, number: int, means: Means, changed: Callable[[Generation], None]) -> None:
        config = version.config
        self.version = version
        self.number = number
        self.stem = f"{version.number}.{number}"
        self.life = Life()
        self.card: Card | None = None
        self.failure: BaseException | None = None
        self._means = means
        self._changed = changed
        self._queue = Queue(means.folder(version.name), self.stem, config)
        devices: tuple[Device | None, ...] = config.devices or (None,)
        places = [device for device in devices for _ in range(config.instances)]
        self.seats = [
            Seat(
                place,
                device,
                self._start,
                self._look,
                load_timeout=config.load_timeout,
                drain_timeout=config.unload_timeout,
                is_single=config.threads <= 1,
            )
            for place, device in enumerate(places)
        ]
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def processes(self) -> list[InstanceProcess]:
        """Those that are there."""
        return [each for seat in self.seats for each in seat.processes]

    async def load(self) -> Card:
        """Start every instance and wait until all are ready. Raises LoadFailed, with nothing left behind."""
        began = time.monotonic()
        _log.info("%s: loading (generation %d, instances: %d)", self.version, self.number, len(self.seats))
        try:
            cards = await self._fill()
        except BaseException as error:
            self._queue.close()
            self.failure = error
            self.life.move(State.FAILED, str(error) or "the load was given up")
            raise
        self.card = msgspec.structs.replace(cards[0], generation=self.number)
        self.life.move(State.READY)
        self._keepers = [asyncio.ensure_future(seat.keep()) for seat in self.seats]
        for each in self._keepers:
            each.add_done_callback(_tell)
        _log.info("%s: loaded in %.2f s (generation %d)", self.version, time.monotonic() - began, self.number)
        return self.card

    async def stop(self, seconds: float) -> None:
        """Finish what waits and is in flight within so many seconds, end the rest with an error, and wait until all is reaped."""
        began = time.monotonic()
        self.life.move(State.DRAINING)
        self._queue.hide()
        await self._stop_keeping()
        until = asyncio.get_running_loop().time() + seconds
        await asyncio.gather(*(each.drain(until) for each in self.processes if self._can_finish(each)))
        self._queue.close()
        await asyncio.gather(*(each.end() if each.is_ready else each.kill() for each in self.processes))
        self.life.move(State.GONE, "unloaded")
        _log.info("%s: ended in %.2f s (generation %d)", self.version, time.monotonic() - began, self.number)

    async def kill(self) -> None:
        """End it at once, and wait until all is reaped."""
        self.life.move(State.DRAINING, self.life.reason)
        self._queue.close()
        await self._stop_keeping()
        await asyncio.gather(*(each.kill() for each in self.processes))
        self.life.move(State.GONE, self.life.reason)

    async def renew(self) -> None:
        """Replace the instances one after the other, each once its replacement is ready. Raises LoadFailed."""
        for seat in self.seats:
            await seat.renew()

    async def _fill(self) -> list[Card]:
        await self._means.check(self.version)
        self._queue.open()
        loads = [asyncio.ensure_future(seat.fill()) for seat in self.seats]
        try:
            return list(await asyncio.gather(*loads))
        except BaseException:
            for each in loads:
                each.cancel()
            await asyncio.wait(loads)
            await asyncio.gather(*(each.kill() for each in self.processes))
            raise

    async def _stop_keeping(self) -> None:
        for each in self._keepers:
            each.cancel()
        if self._keepers:
            await asyncio.wait(self._keepers)

    def _can_finish(self, process: InstanceProcess) -> bool:
        """Not one that still loads, nor one whose only thread is stuck."""
        return process.is_ready and not (process.is_stuck and self.version.config.threads <= 1)

    def _start(self, place: int, device: Device | None, on_stuck: Callable[[], None]) -> InstanceProcess:
        try:
            return self._means.start(self.version, place, device, self._queue.open(), on_stuck)
        except LoadFailed:
            raise
        except (ModelLoadError, OSError) as error:
            raise LoadFailed(str(error)) from error

    def _look(self) -> None:
        """See what the places make of the generation's state."""
        if not self._keepers or self.life.state is State.DRAINING:
            return
        before = (self.life.state, self.life.reason)
        reason = "; ".join(seat.reason for seat in self.seats if seat.reason)
        if any(seat.process for seat in self.seats):
            if self.life.state is State.FAILED:
                self.life.move(State.LOADING)
            self.life.move(State.READY, reason)
        elif self.life.state is State.READY:
            self.life.move(State.LOADING, reason)
        elif not any(seat.incoming for seat in self.seats):
            self.life.move(State.FAILED, reason)
            self._queue.close()
        if (self.life.state, self.life.reason) != before:
            self._changed(self)


def _tell(keeper: asyncio.Task[None]) -> None:
    if not keeper.cancelled() and keeper.exception() is not None:
        _log.critical("a place is not looked after any more", exc_info=keeper.exception())

"""All versions of one model: loaded, replaced and unloaded as one, each operation after the one before it.

A load is for all versions or for none: where one fails, what served before serves on. A copy that was replaced finishes what it has
while the next one already serves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any

import msgspec

from prefork.errors import ModelLoadError, PreforkError, RepositoryError
from prefork.supervisor import memory
from prefork.supervisor.death import size
from prefork.supervisor.entry import Entry
from prefork.supervisor.generation import Generation
from prefork.supervisor.means import Means
from prefork.supervisor.pending import Pending
from prefork.supervisor.plan import plan
from prefork.supervisor.process import LoadFailed
from prefork.supervisor.publishing import RunDirectory
from prefork.supervisor.source import Offer, Version, order
from prefork.supervisor.states import State

_log = logging.getLogger("prefork.supervisor")
_TO_KILL = 4.0
"""Seconds that ending what does not end by itself takes at most."""
_REMEMBERED = 16
"""Versions that are not served any more and that are still known, so that asking for one is 503 and not 404."""


class Unloaded(msgspec.Struct, frozen=True):
    """What an unload gave back, in bytes: the memory of the model's processes before, and after the last of them was reaped.

    gpu_memory_before, gpu_memory_after: what is in use on all devices together, by anybody; None where there is no GPU.
    """

    processes: int = 0
    seconds: float = 0.0
    memory_before: int = 0
    memory_after: int = 0
    gpu_memory_before: int | None = None
    gpu_memory_after: int | None = None


class Shelf:
    """A model by its name. turns: how many models may load at the same time."""

    def __init__(self, name: str, means: Means, run: RunDirectory, turns: asyncio.Semaphore) -> None:
        self.name = name
        self.entries: dict[str, Entry] = {}
        self.failure = ""
        """Why there is no version at all."""
        self.lock = asyncio.Lock()
        self.pending = Pending(name)
        self._means = means
        self._run = run
        self._turns = turns
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def generations(self) -> list[Generation]:
        """All copies that have processes, or are about to."""
        return [each for entry in self.entries.values() for each in entry.generations]

    @property
    def is_serving(self) -> bool:
        """Whether any version is."""
        return any(each.is_ready for each in self.entries.values())

    async def load(self, found: Awaitable[Offer], *, force: bool = False) -> Offer:
        """Serve what is found. Raises PreforkError; then all is served that was served before."""
        offer = await self._looked_up(found)
        served = {number: _fingerprint(each) for number, each in self.entries.items() if each.serving is not None}
        todo = plan(served, offer.versions, force=force)
        for note in offer.notes:
            _log.warning("%s: %s", self.name, note)
        if todo.fresh:
            await self._load_all(todo.fresh)
        self._retire(todo.gone)
        for entry in self.entries.values():
            entry.forgive()
        self._prune()
        self._show()
        return offer

    async def unload(self) -> Unloaded:
        """Take the name away, let every copy finish, end its processes, and wait until they are reaped."""
        began = time.monotonic()
        sessions = {each.pid for generation in self.generations for each in generation.processes}
        before, gpu_before = memory.of(sessions), memory.of_devices()
        self._retire([number for number, each in self.entries.items() if each.serving is not None])
        for entry in self.entries.values():
            entry.forgive()
        self.failure = ""
        self._show()
        if self._leaving:
            await asyncio.wait(self._leaving)
        after, gpu_after = memory.of(sessions), memory.of_devices()
        seconds = time.monotonic() - began
        if sessions:
            _log.info(
                "%s: unloaded in %.2f s; its %d processes had %s", self.name, seconds, len(sessions), size(before)
            )
        return Unloaded(len(sessions), seconds, before, after, gpu_before, gpu_after)

    async def renew(self) -> None:
        """Replace every instance of what is served, one after the other. Raises RepositoryError."""
        for entry in self.entries.values():
            if entry.serving is not None:
                try:
                    await entry.serving.renew()
                except LoadFailed as error:
                    raise RepositoryError(
                        f"model '{self.name}' version {entry.number} cannot be renewed: {error}"
                    ) from None

    async def stop(self, seconds: float) -> None:
        """End everything within so many seconds, and the time it takes to kill."""
        for entry in self.entries.values():
            if entry.serving is not None:
                self._see_off(entry, entry.serving, seconds)
                entry.serving = None
        self._show()
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=seconds + _TO_KILL)
        self.kill_now()
        if self._leaving:
            await asyncio.wait(self._leaving)

    def kill_now(self) -> None:
        """Send KILL to every process, and do not wait."""
        for generation in self.generations:
            for each in generation.processes:
                each.kill_now()

    async def _looked_up(self, found: Awaitable[Offer]) -> Offer:
        try:
            offer = await found
        except PreforkError as error:
            self._not_found(error)
            raise
        self.failure = ""
        return offer

    def _not_found(self, error: PreforkError) -> None:
        self.failure = error.message
        meant = {str(number) for number in getattr(error, "versions", ())}
        for number in meant:
            self.entries.setdefault(number, Entry(number))
        for number, entry in self.entries.items():
            # A version that was withdrawn has no part in it, unless there is no other whose failure it can be.
            if number in meant or entry.serving is not None or entry.failure or not self.is_serving:
                entry.fail(error.message)
        self._show()

    async def _load_all(self, versions: Sequence[Version]) -> None:
        generations = [Generation(each, self._run.next_generation(), self._means, self._changed) for each in versions]
        for each in generations:
            self.entries.setdefault(each.version.number, Entry(each.version.number)).loading = each
            _hold(each)
        self._run.folder(self.name)
        self._show()
        try:
            async with self._turns:
                cards = await _all_or_none([each.load() for each in generations])
        except BaseException as error:
            await self._put_down(generations)
            if isinstance(error, ModelLoadError | OSError):
                raise self._failed(generations, error) from None
            self._show()
            raise
        for generation, card in zip(generations, cards, strict=True):
            self._run.put_card(self.name, generation.stem, card)
            before = self.entries[generation.version.number].take(generation)
            self._show()
            if before is not None:
                self._see_off(self.entries[generation.version.number], before)

    async def _put_down(self, generations: Sequence[Generation]) -> None:
        """Leave nothing of a load that has failed or was given up."""
        try:
            await asyncio.gather(*(each.kill() for each in generations))
        finally:
            for each in generations:
                self.entries[each.version.number].loading = None
                _let_go(each)

    def _failed(self, generations: Sequence[Generation], error: Exception) -> RepositoryError:
        """Every version is held up by the one that failed."""
        culprit = next((each for each in generations if each.failure is error), generations[0])
        why = f"version {culprit.version.number} is at UNAVAILABLE state: {error}"
        message = f"load failed for model '{self.name}': {why}"
        _log.error("%s\n%s", message, getattr(error, "trace", "")) if getattr(error, "trace", "") else _log.error(
            "%s", message
        )
        for each in generations:
            reason = str(error) if each is culprit else why
            self.entries[each.version.number].fail(reason, getattr(error, "trace", ""))
        self._show()
        return RepositoryError(message)

    def _retire(self, numbers: Sequence[str]) -> None:
        leaving = [self.entries[number] for number in numbers]
        going = [(entry, entry.serving) for entry in leaving if entry.serving is not None]
        for entry, _ in going:
            entry.serving = None
            entry.forgive()
            entry.since = time.time()
        self._show()
        for entry, generation in going:
            self._see_off(entry, generation)

    def _see_off(self, entry: Entry, generation: Generation, seconds: float | None = None) -> None:
        entry.leaving.append(generation)
        limit = generation.version.config.unload_timeout if seconds is None else seconds
        task = asyncio.ensure_future(self._end(entry, generation, limit))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _end(self, entry: Entry, generation: Generation, seconds: float) -> None:
        try:
            await generation.stop(seconds)
        finally:
            self._run.drop_card(self.name, generation.stem)
            entry.leaving.remove(generation)
            _let_go(generation)

    def _changed(self, generation: Generation) -> None:
        """A copy has lost its last instance, or has one again."""
        entry = self.entries.get(generation.version.number)
        if entry is not None and entry.serving is generation:
            self._show()

    def _show(self) -> None:
        if not self.entries:
            return  # nothing to show, and the name may be none that a folder can have
        ready = {number: each.serving.stem for number, each in self.entries.items() if each.is_ready and each.serving}
        known = {number: each.trouble for number, each in self.entries.items() if number not in ready}
        wanted = not ready and any(each.serving or each.loading for each in self.entries.values())
        self._run.show(self.name, ready, known, is_wanted=wanted)

    def _prune(self) -> None:
        """After a good load. What is not served and never was has failed once, and is not to be served now."""
        for number in [number for number, each in self.entries.items() if not each.has_served]:
            del self.entries[number]
        gone = sorted((number for number, each in self.entries.items() if each.state is State.GONE), key=order)
        for number in gone[:-_REMEMBERED]:
            del self.entries[number]


async def _all_or_none(loads: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Their results; when one fails, the others are given up first."""
    tasks = [asyncio.ensure_future(each) for each in loads]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
        raise


def _fingerprint(entry: Entry) -> str | None:
    if entry.serving is None or entry.state is not State.READY:
        return None
    return entry.serving.version.fingerprint


def _hold(generation: Generation) -> None:
    if generation.version.override is not None:
        generation.version.override.hold()


def _let_go(generation: Generation) -> None:
    if generation.version.override is not None:
        generation.version.override.release()

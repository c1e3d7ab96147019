"""What is loaded, unloaded and replaced, and when: at the start, by the API, or because the repository has changed.

Operations on one name are done in the order in which they came, so that the last word wins; on different names side by side. Loads
that an unload comes after need not be waited for: they are given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from prefork.errors import NotFound, PreforkError, RepositoryError, Unavailable
from prefork.repository import overrides
from prefork.repository.overrides import Override
from prefork.repository.settled import Settled
from prefork.supervisor import reading
from prefork.supervisor.desired import Desired
from prefork.supervisor.means import Means
from prefork.supervisor.publishing import RunDirectory
from prefork.supervisor.reading import Names
from prefork.supervisor.shelf import Shelf, Unloaded
from prefork.supervisor.source import Offer, Source
from prefork.supervisor.stamps import Stamps

_log = logging.getLogger("prefork.supervisor")
_ALL = "*"
_SOON = 2.0
"""Seconds that who wants to know which models there are waits for a disk."""


class Lifecycle:
    """The models of a supervisor. `settled` is set once each of the start's is loaded or has failed."""

    def __init__(self, means: Means, run: RunDirectory, source: Source) -> None:
        self.shelves: dict[str, Shelf] = {}
        self.settled = asyncio.Event()
        self.failures: dict[str, str] = {}
        """Of the start's models, why those are not loaded that are not."""
        self.source = source
        self._orders = means.orders
        self._means = means
        self._run = run
        self._turns = asyncio.Semaphore(max(1, self._orders.load_threads))
        self._desired = Desired(run.path)
        self._users: dict[str, int] = {}
        self._named: set[str] = set()
        """Names that the operator gave for the start and nobody has unloaded: they are in the index, also where they are no model's."""
        self._names = Names(source.names)
        self._stamps = Stamps(source.stamp)

    async def names(self) -> Sequence[str]:
        """The models that could be loaded; those of before where the disk does not answer soon."""
        return await self._names.get(_SOON)

    async def begin(self, *, again: bool = False) -> None:
        """Load what is to be loaded at the start; `again` where an earlier supervisor has died: then what it had loaded."""
        wanted = await self._wanted(again=again)
        self._named = set(wanted)
        self._desired.begin()
        await asyncio.gather(*(self._begin(name, parameters) for name, parameters in wanted.items()))
        self._run.returned()
        self.settled.set()

    async def load(self, name: str, parameters: Mapping[str, Any] | None = None, *, force: bool = False) -> None:
        """Load a model, or replace it by what it is now. parameters: see `overrides.read`. Raises PreforkError.

        An unload that comes before it is done gives it up.
        """
        async with self._shelf(name) as shelf:
            await shelf.pending.run(self._load(shelf, parameters or {}, force=force))

    async def unload(self, name: str) -> Unloaded:
        """Unload a model; returns once its processes are reaped. A name that is not known is unloaded as it is."""
        if name not in self.shelves:
            return Unloaded()
        async with self._shelf(name) as shelf:
            shelf.pending.give_up()
            async with shelf.lock:
                unloaded = await shelf.unload()
                self.source.forget(name)
                self._desired.drop(name)
                self._named.discard(name)
                self.failures.pop(name, None)
        return unloaded

    async def renew(self, name: str) -> None:
        """Replace a model's instances one after the other, without a gap. Raises PreforkError."""
        if name not in self.shelves:
            raise NotFound(f"model '{name}' is not loaded")
        async with self._shelf(name) as shelf, shelf.lock:
            await shelf.renew()

    async def reload(self) -> dict[str, str]:
        """Load everything that is served anew, as it is now; the failures by name."""
        names = [name for name, shelf in self.shelves.items() if shelf.is_serving]
        results = await asyncio.gather(*(self.load(name, force=True) for name in names), return_exceptions=True)
        return {name: str(error) for name, error in zip(names, results, strict=True) if isinstance(error, Exception)}

    def check_control(self) -> None:
        """Raises Unavailable where it is not the API that says what is loaded."""
        if self._orders.control != "explicit":
            raise Unavailable(
                "explicit model load / unload is not allowed unless the server runs with --control explicit"
            )

    async def follow(self) -> None:
        """Look at the repository again and again, and do what its changes ask for, until cancelled."""
        settled = Settled()
        for name, stamp in (await self._stamps.look(await self.names())).items():
            settled.accept(name, stamp)
        await self.settled.wait()
        doing: set[asyncio.Task[None]] = set()
        while True:
            wait = settled.wait()
            await asyncio.sleep(
                self._orders.poll_seconds if wait is None else min(wait + 0.01, self._orders.poll_seconds)
            )
            for name, is_there in await self._changes(settled):
                task = asyncio.ensure_future(self._follow(name, is_there=is_there))
                doing.add(task)
                task.add_done_callback(doing.discard)

    async def _changes(self, settled: Settled) -> list[tuple[str, bool]]:
        """Names whose files have changed and are at rest, and whether there are any files left."""
        stamps = await self._stamps.look(sorted({*settled.names(), *await self.names()}))
        return [(name, bool(stamp)) for name, stamp in stamps.items() if settled.changed(name, stamp)]

    async def _find(self, name: str, override: Override | None) -> Offer:
        seconds = self._orders.reading_timeout
        try:
            return await reading.ask(lambda: self.source.find(name, override), seconds)
        except TimeoutError:
            raise RepositoryError(
                f"model '{name}': reading its files has taken more than {seconds:g} s; is a disk or a network away?"
            ) from None

    async def _follow(self, name: str, *, is_there: bool) -> None:
        try:
            if is_there:
                _log.info("%s: its files have changed", name)
                await self.load(name)
            else:
                _log.info("%s: its files have gone", name)
                await self.unload(name)
        except PreforkError as error:
            _log.error("%s", error)

    async def _load(self, shelf: Shelf, parameters: Mapping[str, Any], *, force: bool) -> None:
        async with shelf.lock:
            override = overrides.read(parameters, self._run.overrides())
            try:
                offer = await shelf.load(self._find(shelf.name, override), force=force)
                self.source.keep(offer)
            finally:
                if override is not None:
                    override.release()
            if parameters or offer.found is None or offer.found.override is None:
                self._desired.put(shelf.name, parameters)
            self.failures.pop(shelf.name, None)

    async def _begin(self, name: str, parameters: Mapping[str, Any]) -> None:
        try:
            await self.load(name, parameters)
        except PreforkError as error:
            self.failures[name] = error.message
            _log.error("model '%s' is not loaded: %s", name, error.message)

    async def _wanted(self, *, again: bool) -> dict[str, dict[str, Any]]:
        if again and (before := self._desired.read()) is not None and self._orders.control == "explicit":
            return before
        if self._orders.control != "explicit":
            return {name: {} for name in await self._names.get(self._orders.reading_timeout)}
        singles = [each.config.name for each in self._orders.singles]
        is_all = _ALL in self._orders.load_model
        everything = await self._names.get(self._orders.reading_timeout) if is_all else ()
        named = [each for each in self._orders.load_model if each != _ALL]
        return {name: {} for name in (*singles, *everything, *named)}

    @asynccontextmanager
    async def _shelf(self, name: str) -> AsyncIterator[Shelf]:
        """The shelf of a name. One that holds nothing is thrown away with its last user, so that no name costs anything."""
        shelf = self.shelves.get(name) or Shelf(name, self._means, self._run, self._turns)
        self.shelves[name] = shelf
        self._users[name] = self._users.get(name, 0) + 1
        try:
            yield shelf
        finally:
            is_there = bool(shelf.generations) or name in self._named or name in await self.names()
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
                if not shelf.generations and not is_there:
                    del self.shelves[name]
                    if shelf.entries:
                        self._run.forget(name)

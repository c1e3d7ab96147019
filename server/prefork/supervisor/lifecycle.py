"""What is loaded, unloaded and replaced, and when: at the start, by the API, or because the repository has changed.

Operations on one name are done in the order in which they came, so that the last word wins; on different names side by side. Loads
that an unload comes after need not be waited for: they are given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prefork.errors import NotFound, PreforkError, Unavailable
from prefork.repository import overrides
from prefork.repository.settled import Settled
from prefork.supervisor.desired import Desired
from prefork.supervisor.means import Means
from prefork.supervisor.publishing import RunDirectory
from prefork.supervisor.shelf import Shelf, Unloaded
from prefork.supervisor.source import Source

_log = logging.getLogger("prefork.supervisor")
_ALL = "*"


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

    async def begin(self, *, again: bool = False) -> None:
        """Load what is to be loaded at the start; `again` where an earlier supervisor has died: then what it had loaded."""
        wanted = self._wanted(again=again)
        self._named = set(wanted)
        self._desired.begin()
        await asyncio.gather(*(self._begin(name, parameters) for name, parameters in wanted.items()))
        self.settled.set()

    async def load(self, name: str, parameters: Mapping[str, Any] | None = None, *, force: bool = False) -> None:
        """Load a model, or replace it by what it is now. parameters: see `overrides.read`. Raises PreforkError.

        An unload that comes before it is done gives it up.
        """
        with self._shelf(name) as shelf:
            await shelf.pending.run(self._load(shelf, parameters or {}, force=force))

    async def unload(self, name: str) -> Unloaded:
        """Unload a model; returns once its processes are reaped. A name that is not known is unloaded as it is."""
        if name not in self.shelves:
            return Unloaded()
        with self._shelf(name) as shelf:
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
        with self._shelf(name) as shelf:
            async with shelf.lock:
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
        for name, stamp in (self._stamps() or {}).items():
            settled.accept(name, stamp)
        await self.settled.wait()
        doing: set[asyncio.Task[None]] = set()
        while True:
            wait = settled.wait()
            await asyncio.sleep(
                self._orders.poll_seconds if wait is None else min(wait + 0.01, self._orders.poll_seconds)
            )
            for name, is_there in self._changes(settled):
                task = asyncio.ensure_future(self._follow(name, is_there=is_there))
                doing.add(task)
                task.add_done_callback(doing.discard)

    def _changes(self, settled: Settled) -> list[tuple[str, bool]]:
        """Names whose files have changed and are at rest, and whether there are any files left."""
        stamps = self._stamps()
        if stamps is None:
            return []
        names = sorted(settled.names() | set(stamps))
        return [(name, bool(stamps.get(name))) for name in names if settled.changed(name, stamps.get(name, ""))]

    def _stamps(self) -> Mapping[str, str] | None:
        try:
            return self.source.stamps()
        except PreforkError as error:
            _log.error("the repository cannot be looked at: %s", error)
            return None

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
                offer = await shelf.load(lambda: self.source.find(shelf.name, override), force=force)
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

    def _wanted(self, *, again: bool) -> dict[str, dict[str, Any]]:
        if again and (before := self._desired.read()) is not None and self._orders.control == "explicit":
            return before
        if self._orders.control != "explicit":
            return {name: {} for name in self.source.names()}
        singles = [each.config.name for each in self._orders.singles]
        everything = self.source.names() if _ALL in self._orders.load_model else ()
        named = [each for each in self._orders.load_model if each != _ALL]
        return {name: {} for name in (*singles, *everything, *named)}

    @contextmanager
    def _shelf(self, name: str) -> Iterator[Shelf]:
        """The shelf of a name. One that holds nothing is thrown away with its last user, so that no name costs anything."""
        shelf = self.shelves.get(name) or Shelf(name, self._means, self._run, self._turns)
        self.shelves[name] = shelf
        self._users[name] = self._users.get(name, 0) + 1
        try:
            yield shelf
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
                if not shelf.generations and not self._is_there(name):
                    del self.shelves[name]
                    if shelf.entries:
                        self._run.forget(name)

    def _is_there(self, name: str) -> bool:
        try:
            return name in self._named or name in self.source.names()
        except PreforkError:
            return True

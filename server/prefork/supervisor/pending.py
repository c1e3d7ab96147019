"""The loads of one model that are not done: they go on or wait for their turn, until an unload gives them all up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from prefork.errors import RepositoryError


class Pending:
    """Loads of a name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loads: set[asyncio.Task[None]] = set()

    async def run(self, load: Coroutine[None, None, None]) -> None:
        """Do a load. Raises what it raises, and RepositoryError once it was given up and nothing of it is left."""
        task = asyncio.ensure_future(load)
        self._loads.add(task)
        try:
            await task
        except asyncio.CancelledError:
            if task in self._loads:
                raise  # not by an unload: the server is stopping
            why = "an unload of it was asked for meanwhile"
            raise RepositoryError(f"load failed for model '{self._name}': {why}") from None
        finally:
            self._loads.discard(task)

    def give_up(self) -> None:
        """Have those that have come so far end."""
        for each in self._loads:
            each.cancel()
        self._loads.clear()

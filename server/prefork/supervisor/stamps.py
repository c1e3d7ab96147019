"""What the files of many names look like, looked at again and again: a name whose files hang holds up no other.

One thread walks through all names. When it stays at one for too long it is left alone with it, and another one goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from prefork import apart

_log = logging.getLogger("prefork.supervisor")
_PATIENCE = 5.0


class Stamps:
    """stamp: a text for a name, equal as long as its files are; it may take long, and raises nothing.

    patience: seconds at one name after which the others are not kept waiting.
    """

    def __init__(self, stamp: Callable[[str], str], patience: float = _PATIENCE) -> None:
        self._stamp = stamp
        self._patience = patience
        self._hanging: dict[str, _Walk] = {}

    async def look(self, names: Iterable[str]) -> Mapping[str, str]:
        """The stamps of the names, without those that cannot be told now."""
        stamps = self._late()
        todo = [name for name in names if name not in self._hanging and name not in stamps]
        while todo:
            walk = _Walk(todo, self._stamp)
            found = await walk.found(self._patience)
            stamps.update(found)
            todo = todo[len(found) :]
            if todo:
                name = todo.pop(0)
                _log.error("%s: its files cannot be looked at: that takes more than %g s", name, self._patience)
                self._hanging[name] = walk
        return stamps

    def _late(self) -> dict[str, str]:
        """The stamps of those that hung the last time and do not any more."""
        late = {name: walk.all_found[name] for name, walk in self._hanging.items() if name in walk.all_found}
        for name in late:
            del self._hanging[name]
            _log.info("%s: its files can be looked at again", name)
        return late


class _Walk:
    """A thread that goes from name to name until it is through, or is left alone."""

    def __init__(self, names: list[str], stamp: Callable[[str], str]) -> None:
        self.all_found: dict[str, str] = {}
        self._is_left = False
        self._names = names
        self._stamp = stamp

    async def found(self, patience: float) -> Mapping[str, str]:
        """What it has found when it is through, or has been at one name for so many seconds."""
        going = apart.begin(self._go)
        before = -1
        while not going.done() and len(self.all_found) != before:
            before = len(self.all_found)
            await asyncio.wait({going}, timeout=patience)
        self._is_left = True
        going.cancel()
        return dict(self.all_found)

    def _go(self) -> None:
        for name in self._names:
            self.all_found[name] = self._stamp(name)
            if self._is_left:
                return

"""A watch over the source files of every module that is imported here, for `reload`."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

_EVERY = 0.5


class Watch(threading.Thread):
    """Calls `changed` with the name of a file, on a daemon thread, each time that one becomes newer.

    more: other files, which need not exist yet.
    """

    def __init__(self, changed: Callable[[str], None], more: Iterable[str] = ()) -> None:
        super().__init__(name="watch", daemon=True)
        self._changed = changed
        self._more = tuple(more)
        self._times = {name: _time(name) for name in self._files()}

    def run(self) -> None:
        """Look for changes as long as the process lives."""
        while True:
            time.sleep(_EVERY)
            self.look()

    def look(self) -> None:
        """Look once."""
        for name in self._files():
            now = _time(name)
            if now > self._times.setdefault(name, now):
                self._times[name] = now
                self._changed(name)

    def _files(self) -> list[str]:
        modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        return [*(name for name in modules if name), *self._more]


def _time(name: str) -> float:
    with suppress(OSError):
        return os.stat(name).st_mtime  # noqa: PTH116 - a thousand files twice a second
    return 0.0

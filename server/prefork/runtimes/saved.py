"""A saved model as an object with `load`, `predict`, `example` and `close`, which a `Model` takes as it takes a user's."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import time
from pathlib import Path

from prefork.errors import ModelLoadError
from prefork.fetching.progress import amount
from prefork.model.declared import Declared
from prefork.model.loading import size_of
from prefork.payload import Payload
from prefork.runtimes import table
from prefork.runtimes.runtime import Opened, Options, check_parameters, trial

log = logging.getLogger("prefork")


class Saved:
    """The model in a file or folder. `predict` is there once `load` ran; nothing of the framework is imported before."""

    def __init__(self, runtime: str, path: Path, options: Options) -> None:
        self._runtime = table.find(runtime)
        self._path = path
        self._options = options
        self._opened: Opened | None = None
        check_parameters(self._runtime, options.parameters)
        if not path.exists():
            raise ModelLoadError(f"there is no {path}")

    @property
    def saved_path(self) -> Path:
        """The file or folder: how much of it has been read is shown while it loads."""
        return self._path

    def load(self) -> None:
        """Open it. Raises ModelLoadError."""
        begun = time.monotonic()
        opened = self._opened = self._runtime.open(self._path, self._options)
        self.predict = Declared(
            opened.takes,
            opened.outputs,
            opened.labels,
            opened.run,
            self._runtime.platform,
            example=opened.example,
        )
        log.info(
            "%s (%s, %s) was loaded by %s in %.2f s: %s",
            self._path.name, self._runtime.name, amount(size_of(self._path)), os.getpid(), time.monotonic() - begun, opened.facts,
        )  # fmt: skip

    @property
    def example(self) -> Payload | None:
        """A request that it takes: its own example, or zeros of the declared shapes."""
        opened = self._opened
        return None if opened is None else trial(opened.takes, opened.example)

    def close(self) -> None:
        """Give the memory back, as far as a process can that lives on."""
        opened, self._opened = self._opened, None
        self.__dict__.pop("predict", None)
        if opened is None:
            return
        opened.close()
        del opened
        gc.collect()
        _trim()


def _trim() -> None:
    """What glibc keeps of freed memory goes back to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        return

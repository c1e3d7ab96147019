"""The private folder of a server whose models run in processes of their own: made by the arbiter, removed when it ends.

It is one server's: the folder is locked before anything else is done. The arbiter and its supervisors share the lock, so that it
lasts as long as any of them does.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from prefork.errors import SettingError

_PATIENCE = 3.0
"""Seconds that what a killed server has left has to be gone."""
_GLANCE = 0.02


class RunDirectory:
    """A folder that was asked for, or a temporary one. path: empty until it is there. lock: the descriptor that has the lock."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self.path = ""
        self.lock = -1

    def open(self) -> None:
        """Have it. Raises SettingError when that is not possible, or another server has it."""
        try:
            if self._wanted:
                Path(self._wanted).mkdir(mode=0o700, parents=True, exist_ok=True)
                self.path = str(Path(self._wanted).resolve())
            else:
                self.path = tempfile.mkdtemp(prefix="prefork-")
        except OSError as error:
            raise SettingError(
                f"run_dir: {self._wanted or tempfile.gettempdir()}: no folder can be made: {error.strerror}; say --run-dir"
            ) from None
        if not os.access(self.path, os.W_OK):
            raise SettingError(f"run_dir: {self.path} cannot be written to")
        self._take()

    def close(self) -> None:
        """Remove what is temporary."""
        if self.path and not self._wanted:
            shutil.rmtree(self.path, ignore_errors=True)
        self.path = ""
        self.let_go()

    def let_go(self) -> None:
        """Have no part in the lock, or no more: in a child that may outlive the arbiter for a while."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def _take(self) -> None:
        self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        until = time.monotonic() + _PATIENCE
        while not _locked(self.lock):
            if time.monotonic() > until:
                self.let_go()
                raise SettingError(f"run_dir: another server uses {self.path}; each needs a folder of its own")
            time.sleep(_GLANCE)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

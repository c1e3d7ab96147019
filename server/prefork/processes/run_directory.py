"""The private folder of a server whose models run in processes of their own: made by the arbiter, removed when it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from prefork.errors import SettingError


class RunDirectory:
    """A folder that was asked for, or a temporary one. path: empty until it is there."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self.path = ""

    def open(self) -> None:
        """Have it. Raises SettingError when that is not possible."""
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

    def close(self) -> None:
        """Remove what is temporary."""
        if self.path and not self._wanted:
            shutil.rmtree(self.path, ignore_errors=True)
        self.path = ""

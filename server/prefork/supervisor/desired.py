"""What is to be loaded though nobody says so again: RUN_DIR/desired/<name>.json holds what each load through the API brought.

It outlives the supervisor, and tells the next one of the same server what to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from prefork.supervisor.publishing import write


class Desired:
    """The loads that hold, one file each."""

    def __init__(self, run_dir: str | Path) -> None:
        self._folder = Path(run_dir, "desired")

    def read(self) -> dict[str, dict[str, Any]] | None:
        """The parameters of the loads by name; None where no supervisor has begun to write them."""
        if not self._folder.is_dir():
            return None
        return {
            each.name.removesuffix(".json"): msgspec.json.decode(each.read_bytes(), type=dict[str, Any])
            for each in sorted(self._folder.glob("*.json"))
        }

    def begin(self) -> None:
        """Nothing is desired yet."""
        self._folder.mkdir(exist_ok=True)

    def put(self, name: str, parameters: Mapping[str, Any]) -> None:
        """A model is to be loaded, with what its load brought."""
        write(self._file(name), msgspec.json.encode(parameters))

    def drop(self, name: str) -> None:
        """It is not any more."""
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

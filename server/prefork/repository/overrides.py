"""What a load says instead of the model's own files: `config`, and `file:<version>/<path>` in base64.

The config, Triton's ModelConfig or model.yaml's keys as JSON, stands for the whole config. With files they alone are the
model: they lie in a private folder, which goes when the last user of the override lets go of it.
Source: Triton's model repository extension, load parameters.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefork.errors import RepositoryError
from prefork.repository import config, fingerprint, private, triton
from prefork.repository.reading import Wrong

FILE = "file:"


class Override:
    """A config, perhaps with files, and the number of those who use it. Who makes it is its first user."""

    def __init__(self, said: dict[str, Any], folder: Path | None = None) -> None:
        self._said = said
        self._users = 1
        self._lock = threading.Lock()
        self.folder = folder

    def config(self, folder: Path) -> triton.Read:
        """The config. folder: the model's, for the files that a config names. Raises RepositoryError that names the key."""
        try:
            if triton.is_triton(self._said):
                return triton.read_json(self._said, folder)
            return triton.Read(config.read(self._said))
        except (Wrong, ValueError) as error:
            raise RepositoryError(f"config: {error}") from None

    def hold(self) -> Override:
        """One user more."""
        with self._lock:
            if not self._users:
                raise RuntimeError("its last user has let go of this override")
            self._users += 1
        return self

    def release(self) -> None:
        """One user less; with the last one the files go."""
        with self._lock:
            self._users = max(0, self._users - 1)
            gone = not self._users
        if gone and self.folder is not None:
            private.remove(self.folder)

    @property
    def stamp(self) -> str:
        """Equal for the same config and the same files on disk."""
        files = "" if self.folder is None else fingerprint.folder(self.folder)
        return fingerprint.text(json.dumps(self._said, sort_keys=True), files)


def read(parameters: Mapping[str, Any], parent: Path | None = None) -> Override | None:
    """The override that a load's parameters describe; None where they describe none.

    parent: where the private folder is made. Raises RepositoryError that names the parameter; nothing is left on disk then.
    """
    files = {name.removeprefix(FILE): data for name, data in parameters.items() if name.startswith(FILE)}
    unknown = [name for name in parameters if name != "config" and not name.startswith(FILE)]
    if unknown:
        raise RepositoryError(f"{unknown[0]}: no such parameter; a load takes config and {FILE}<version>/<path>")
    said = _config(parameters.get("config"))
    if said is None:
        if files:
            raise RepositoryError("files without a config: a load with files needs the parameter config")
        return None
    return Override(said, _written(files, parent) if files else None)


def _config(raw: Any) -> dict[str, Any] | None:
    if raw is None:
        return None
    try:
        value = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError) as error:
        raise RepositoryError(f"config: is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise RepositoryError("config: a JSON object is needed, as text")
    return value


def _written(files: Mapping[str, Any], parent: Path | None) -> Path:
    """All files in a new folder, or none of them."""
    contents = {path: _decoded(path, data) for path, data in files.items()}
    folder = private.make(parent)
    try:
        for path, data in contents.items():
            private.write(folder, path, data)
    except BaseException:
        private.remove(folder)
        raise
    return folder


def _decoded(path: str, data: Any) -> bytes:
    if not isinstance(data, str):
        raise RepositoryError(f"{FILE}{path}: base64 text is needed")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RepositoryError(f"{FILE}{path}: is no base64: {error}") from None

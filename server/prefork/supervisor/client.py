"""The other end of the control socket: what HTTP workers and the arbiter ask of the supervisor. Blocking."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from prefork.control import Freed, Standing
from prefork.errors import BadRequest, NotFound, PreforkError, Unavailable

_RETRY = 0.02
_PATIENCE = 2.0
"""Seconds for which a supervisor that is not there may be on its way: it is replaced when it has died."""


class SupervisorControl:
    """A Control over the supervisor's socket. A connection for each request, so that a replaced supervisor is found."""

    def __init__(self, run_dir: str) -> None:
        self._path = Path(run_dir) / "supervisor.sock"

    def index(self) -> Sequence[Standing]:
        """Every model that is known."""
        return msgspec.convert(self._ask("index")["models"], list[Standing])

    def load(self, name: str, config: Mapping[str, Any] | None, files: Mapping[str, str]) -> None:
        """Load a model, and wait."""
        parameters: dict[str, Any] = {f"file:{path}": text for path, text in files.items()}
        if config is not None:
            parameters["config"] = msgspec.json.encode(config).decode()
        self._ask("load", name=name, parameters=parameters)

    def unload(self, name: str) -> Freed:
        """Unload a model, and wait until its processes are gone."""
        return msgspec.convert(self._ask("unload", name=name)["unloaded"], Freed)

    def status(self) -> dict[str, Any]:
        """All that the supervisor knows."""
        return self._ask("status")

    def begin_reload(self) -> None:
        """Have everything that is served loaded anew, and do not wait: what has begun goes on without who asked."""
        with self._connect(0.0) as connection:
            connection.sendall(msgspec.json.encode({"op": "reload"}) + b"\n")

    def wait_settled(self, patience: float) -> dict[str, str]:
        """Wait until the start's models are loaded or have failed; why those have that have. patience: for the socket to appear."""
        failures: dict[str, str] = self._ask("wait_settled", patience=patience)["failures"]
        return failures

    def _ask(self, op: str, *, patience: float = _PATIENCE, **more: Any) -> dict[str, Any]:
        with self._connect(patience) as connection, connection.makefile("rb") as answers:
            connection.sendall(msgspec.json.encode({"op": op, **more}) + b"\n")
            line = answers.readline()
        if not line:
            raise Unavailable("the supervisor of the models has gone; it is replaced")
        answer: dict[str, Any] = msgspec.json.decode(line)
        if not answer["ok"]:
            raise _error(answer)
        return answer

    def _connect(self, patience: float) -> socket.socket:
        deadline = time.monotonic() + patience
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._reach(connection)
            except OSError:
                connection.close()
                if time.monotonic() > deadline:
                    raise Unavailable("the supervisor of the models cannot be reached at this moment") from None
                time.sleep(_RETRY)
            else:
                return connection

    def _reach(self, connection: socket.socket) -> None:
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)  # the kernel takes 107 bytes of a path
        try:
            connection.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)


def _error(answer: Mapping[str, Any]) -> PreforkError:
    kinds = {400: BadRequest, 404: NotFound, 503: Unavailable}
    kind = kinds.get(answer["status"], PreforkError)
    return kind(answer["error"], status=answer["status"], reason=answer["reason"])

"""Real instance processes: `python -P -m prefork.remote` with a control descriptor and a listening socket, as the supervisor starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from prefork.remote import Card, Charge, RemoteInstance
from prefork.repository.config import ModelConfig
from prefork.supervisor.spawn import spawn
from running import SOURCE

TESTS = str(Path(__file__).parent)
DEADLINE = 60.0


class InstanceProcess:
    """A process of its own for a class, and what a supervisor would say to it and hear of it.

    more: fields of the Charge; config: of the ModelConfig.
    """

    def __init__(self, class_: str, folder: str = TESTS, backlog: int = 64, more: Any = None, **config: Any) -> None:
        self._place = tempfile.TemporaryDirectory()
        self.path = f"{self._place.name}/s.sock"
        self.log = Path(self._place.name, "log")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(backlog)
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(DEADLINE)
        self._lines = self._ours.makefile("rb")
        self._config = ModelConfig(name="m", class_=class_, **config)
        given = {"folder": folder, "directory": folder, "listeners": (4,), "parent": os.getpid(), **(more or {})}
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        arguments = (sys.executable, "-P", "-m", "prefork.remote")
        self.pid = spawn(arguments, environment, {1: log, 2: log, 3: theirs.fileno(), 4: self.listener.fileno()})
        os.close(log)
        theirs.close()
        self._say(Charge(config=self._config, **given))
        self.status: int | None = None
        self._instances: list[RemoteInstance] = []

    def serve(self) -> InstanceProcess:
        """Wait until it is ready, and have it serve."""
        self.card = self.ready()
        self.tell("serve")
        return self

    def ready(self) -> Card:
        """Wait until it is ready."""
        event = self.hear("ready", "failed")
        assert event["event"] == "ready", event
        self.memory = event["memory"]
        return msgspec.convert(event["card"], Card)

    def hear(self, *events: str) -> dict[str, Any]:
        """The next of these events."""
        while True:
            line = self._lines.readline()
            assert line, f"the process has ended:\n{self.log.read_text()}"
            event: dict[str, Any] = json.loads(line)
            if event["event"] in events:
                return event

    def tell(self, what: str, **more: Any) -> None:
        """Give an order."""
        self._say({"do": what, **more})

    def instance(self, **more: Any) -> RemoteInstance:
        """A worker's end of it."""
        found = RemoteInstance(lambda _level: self.path, self.card, **more)
        self._instances.append(found)
        return found

    def connect(self) -> socket.socket:
        """A connection of one's own."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(DEADLINE)
        sock.connect(self.path)
        return sock

    def kill(self, how: int = signal.SIGKILL) -> None:
        """Send its group a signal."""
        os.killpg(self.pid, how)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        if self.status is None:
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def close(self) -> None:
        """End it with all that belongs to it."""
        if self.status is None:
            with suppress(ProcessLookupError):
                self.kill()
            self.wait()
        for instance in self._instances:
            instance.close()
        self._lines.close()
        self._ours.close()
        self.listener.close()
        self._place.cleanup()

    def hang_up(self) -> None:
        """Close the control descriptor, as a supervisor that dies does."""
        self._lines.close()
        self._ours.close()

    def _say(self, what: Any) -> None:
        self._ours.sendall(msgspec.json.encode(what) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

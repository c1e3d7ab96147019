"""The supervisor's end of an instance's control descriptor: JSON lines both ways. What is no message is dropped, and said."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import msgspec

from prefork.remote.charge import Card

_log = logging.getLogger("prefork.supervisor")
_LONGEST = 64 << 20
_READ = 1 << 16


class Event(msgspec.Struct, frozen=True):
    """What an instance says: `loading`, `ready` with its card, `failed` with a message and a traceback, `stuck`, `drained`."""

    event: str
    card: Card | None = None
    memory: int = 0
    message: str = ""
    traceback: str = ""


class Conversation:
    """One instance's control connection. `closed` is set once the instance has no more to say."""

    def __init__(self, connection: socket.socket, hear: Callable[[Event], None]) -> None:
        connection.setblocking(False)  # noqa: FBT003 - the signature is socket's
        self._connection = connection
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._in = bytearray()
        self._out = bytearray()
        self.closed = asyncio.Event()
        self._loop.add_reader(connection, self._read)

    def say(self, line: bytes) -> None:
        """Send a line, as soon as the far end has room for it."""
        if self._connection.fileno() >= 0:
            self._out += line + b"\n"
            self._write()

    def close(self) -> None:
        """Say and hear no more."""
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()
        self.closed.set()

    def _write(self) -> None:
        try:
            sent = self._connection.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError:  # it is gone, which its process id tells as well
            self._out.clear()
            sent = 0
        del self._out[:sent]
        if self._out:
            self._loop.add_writer(self._connection, self._write)
        else:
            self._loop.remove_writer(self._connection)

    def _read(self) -> None:
        try:
            data = self._connection.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._in += data
        if not data or len(self._in) > _LONGEST:
            self.close()
            return
        *lines, rest = self._in.split(b"\n")
        self._in = rest
        for line in lines:
            self._take(bytes(line))

    def _take(self, line: bytes) -> None:
        try:
            event = msgspec.json.decode(line, type=Event)
        except msgspec.MsgspecError as error:
            _log.warning("an instance said what is no message (%s): %.200r", error, line)
            return
        self._hear(event)

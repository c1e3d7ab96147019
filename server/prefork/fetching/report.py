"""What the process that fetches says while it is at it: JSON lines, read by the one that asked."""

from __future__ import annotations

import logging
from typing import BinaryIO, Literal

import msgspec

Kind = Literal["expect", "at", "say", "done", "failed"]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. expect: `total` bytes in all, `number` of them there before; at: `number` bytes there; say: `text` for the log.

    The last line is done, with the path in `text`, or failed, with the message.
    """

    kind: Kind
    number: int = 0
    total: int | None = None
    level: int = logging.INFO
    text: str = ""


class Report:
    """Events, written at once. Whoever writes ends with BrokenPipeError when nobody reads any more."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def expect(self, total: int | None, found: int) -> None:
        """There are so many bytes, and so many were there before."""
        self._send(Event("expect", number=found, total=total))

    def at(self, done: int) -> None:
        """So many bytes are there."""
        self._send(Event("at", number=done))

    def say(self, text: str, level: int = logging.INFO) -> None:
        """A line for the log."""
        self._send(Event("say", text=text, level=level))

    def warn(self, text: str) -> None:
        """A line for the log that somebody should see."""
        self.say(text, logging.WARNING)

    def done(self, path: str) -> None:
        """It is there."""
        self._send(Event("done", text=path))

    def failed(self, message: str) -> None:
        """It is not there, and will not be."""
        self._send(Event("failed", text=message))

    def _send(self, event: Event) -> None:
        self._stream.write(msgspec.json.encode(event) + b"\n")
        self._stream.flush()

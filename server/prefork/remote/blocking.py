"""Frames on a blocking socket."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from prefork.frames.layout import Buffer
from prefork.remote.wire import Arrived, Incoming, push, receive


def frame(sock: socket.SocketType, incoming: Incoming) -> Arrived:
    """The next frame. Raises Cut, BadFrame and OSError, which a timeout is too."""
    while (found := incoming.next()) is None:
        receive(sock, incoming)
    return found


def send(sock: socket.SocketType, parts: Sequence[Buffer], descriptor: int = -1) -> None:
    """All of it, however many calls that takes. Raises OSError."""
    while parts:
        parts, descriptor = push(sock, parts, descriptor), -1

"""Frames on a blocking socket."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence

from prefork.frames.layout import Buffer
from prefork.remote.wire import Arrived, Incoming, push, receive

_LEAST = 0.001
"""Seconds; a timeout of none would mean another kind of socket."""


def limit(sock: socket.SocketType, deadline: float) -> None:
    """Have each call end at that time of the monotonic clock, with TimeoutError; or never."""
    sock.settimeout(None if deadline == math.inf else max(_LEAST, deadline - time.monotonic()))


def frame(sock: socket.SocketType, incoming: Incoming, deadline: float = math.inf) -> Arrived:
    """The next frame. Raises Cut, BadFrame and OSError, which a timeout is too."""
    while (found := incoming.next()) is None:
        if deadline != math.inf:
            limit(sock, deadline)
        receive(sock, incoming)
    return found


def send(sock: socket.SocketType, parts: Sequence[Buffer], descriptor: int = -1) -> None:
    """All of it, however many calls that takes. Raises OSError."""
    while parts:
        parts, descriptor = push(sock, parts, descriptor), -1

"""What an instance process holds its requests to."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Bytes. frame: of a request's tensors. memory: of the whole process, 0 for any.

    room: connections that may stay when they are answered.
    """

    frame: int
    memory: int = 0
    room: int = 0

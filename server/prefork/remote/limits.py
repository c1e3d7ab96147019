"""What an instance process holds its requests to."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Bytes. frame: of a request's tensors. memory: of the whole process, 0 for any."""

    frame: int
    memory: int = 0

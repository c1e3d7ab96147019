"""Event loops: uvloop's where it is installed."""

from __future__ import annotations

import asyncio
from functools import cache

try:
    import uvloop
except ImportError:  # pragma: no cover - one of the two is there
    uvloop = None  # type: ignore[assignment]


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop that does not run yet."""
    return asyncio.new_event_loop() if uvloop is None else uvloop.new_event_loop()


@cache
def of_model() -> asyncio.AbstractEventLoop:
    """The loop of this process's asynchronous model: what it opens while it is tried belongs to it when it serves."""
    return new_loop()

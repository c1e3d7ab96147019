"""Waiting for a model that has a name and nobody who listens: its supervisor has died, and the next one loads it again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from prefork.errors import Unavailable
from prefork.payload import Payload
from prefork.remote.talk import Talk

_PATIENCE = 10.0
"""Seconds that a request waits for it."""
_GLANCE = 0.02

Found = TypeVar("Found")


class Away(Unavailable):
    """It is to be back in a moment."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.headers = (("Retry-After", "1"),)


def wait(find: Callable[[Talk, Payload], Found], talk: Talk, request: Payload) -> Found:
    """What is found once that does not raise Away any more; raises it when the time is up. Blocks."""
    until = 0.0
    while True:
        try:
            return find(talk, request)
        except Away:
            until = until or _until(request)
            if time.monotonic() >= until:
                raise
        time.sleep(_GLANCE)


async def wait_async(find: Callable[[Talk, Payload], Found], talk: Talk, request: Payload) -> Found:
    """As `wait`, on the running event loop."""
    until = 0.0
    while True:
        try:
            return find(talk, request)
        except Away:
            until = until or _until(request)
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(_GLANCE)


def _until(request: Payload) -> float:
    return min(time.monotonic() + _PATIENCE, request.deadline)

"""The way back to a reader in the same process: a thread, or a task on an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable

from prefork.errors import PreforkError
from prefork.payload import Payload

Item = tuple[Payload | None, bool] | PreforkError
"""An answer and whether it is the last, None where only the end comes; or the error."""

_AHEAD = 16
"""How many parts of a stream may wait for the reader before the model is held back."""


class Inbox:
    """A Reply that delivers items. is_done: whether the last was delivered, or none will be."""

    def __init__(self, deliver: Callable[[Item], None], cancelled: Callable[[], bool] | None) -> None:
        self._deliver = deliver
        self._cancelled = cancelled
        self._is_left = False
        self._room: threading.Semaphore | None = None
        self.is_done = False

    def is_cancelled(self) -> bool:
        """Whether the reader has gone, or whoever that asks for."""
        return self._is_left or (self._cancelled is not None and self._cancelled())

    def answer(self, answer: Payload, *, last: bool) -> None:
        """Deliver one answer, when there is room for it."""
        if last:
            self.is_done = True
        else:
            if self._room is None:
                self._room = threading.Semaphore(_AHEAD)
            if not self._is_left:
                self._room.acquire()
        self._deliver((answer, last))

    def end(self) -> None:
        """Deliver the end."""
        self.is_done = True
        self._deliver((None, True))

    def fail(self, error: PreforkError) -> None:
        """Deliver the error."""
        self.is_done = True
        self._deliver(error)

    def read(self, item: Item) -> tuple[Payload | None, bool]:
        """For the reader: an item that was delivered. Raises the error that it is."""
        if isinstance(item, PreforkError):
            raise item
        if self._room is not None:
            self._room.release()
        return item

    def leave(self) -> None:
        """The reader has gone."""
        self._is_left = True
        if self._room is not None:
            self._room.release()

"""What a model thread gives instead of a response, when it is free for others before there is one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from prefork.http import Response
from prefork.model.outbox import Outbox


class Later(Response):
    """A response whose parts come when they come, sent by whatever thread.

    work: runs the model, on the thread that was given this; it gives what has still to be done on a model thread, or None.
    finish: makes the response, on the event loop, from the moment at which this is there. outbox: where the parts come by.
    """

    __slots__ = ("finish", "outbox", "work")

    def __init__(
        self, work: Callable[[], Response | None], finish: Callable[[], Awaitable[Response]], outbox: Outbox
    ) -> None:
        super().__init__()
        self.work = work
        self.finish = finish
        self.outbox = outbox


class Again(Response):
    """No response: the model has handed the request back. produce: goes on with it, on a model thread, behind the others."""

    __slots__ = ("produce",)

    def __init__(self, produce: Callable[[], Response | None]) -> None:
        super().__init__()
        self.produce = produce

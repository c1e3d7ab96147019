"""A request that waits for a batch, the way back to who asked, and the terms on which it waits.

Who runs it and who gives it up (its time is up, the client has gone) may be different threads: the first to `claim` it
decides, and nobody else touches it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Protocol

from prefork.batch.merge import Merge
from prefork.batch.plan import Waiting, level, patience
from prefork.errors import PreforkError, Unavailable
from prefork.payload import ModelSpec, Payload
from prefork.repository.config import Batching


class Reply(Protocol):
    """The way back to who asked. Only who has claimed the request uses it, and nothing of it raises.

    It ends with exactly one of: `answer` with `last`, `end`, `fail`. That releases everything the request held.
    """

    def is_cancelled(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def answer(self, answer: Payload, *, last: bool) -> None:
        """One answer. May wait for a slow reader of a stream, until that goes."""
        ...

    def end(self) -> None:
        """Nothing more comes."""
        ...

    def fail(self, error: PreforkError) -> None:
        """The error instead of, or behind, answers."""
        ...


class Ask(Waiting):
    """One request that waits.

    claimed: called once, by whoever claims it. is_claimed: whether it runs, ran or was given up.
    """

    __slots__ = ("_claim", "claimed", "is_claimed", "payload", "reply")

    def __init__(self, payload: Payload, reply: Reply, rows: int, **waiting: object) -> None:
        super().__init__(rows, **waiting)  # type: ignore[arg-type]
        self.payload = payload
        self.reply = reply
        self.claimed: Callable[[Ask], None] | None = None
        self.is_claimed = False
        self._claim = threading.Lock()

    def claim(self) -> bool:
        """Whether it is the caller's to run or to give up, from now on."""
        if not self._claim.acquire(blocking=False):
            return False
        self.is_claimed = True
        if self.claimed is not None:
            self.claimed(self)
        return True

    def refuse(self, error: PreforkError) -> None:
        """Give it up with that error, unless somebody was faster."""
        if self.claim():
            self.reply.fail(error)


class Terms:
    """Makes Asks out of requests, by what the policy and the model's spec say of them."""

    def __init__(self, policy: Batching, spec: ModelSpec) -> None:
        self.policy = policy
        self.merge = Merge(spec)

    def level(self, request: Payload) -> int:
        """The request's level: 1 is the most urgent."""
        return level(self.merge.for_queue(request), self.policy)

    def ask(self, request: Payload, reply: Reply, *, arrived: float, deadline: float = math.inf) -> Ask:
        """The request, waiting. arrived, deadline: in monotonic seconds, when it began to wait and when its whole time is up."""
        rows, key = self.merge.measure(request)
        said = self.merge.for_queue(request)
        at = level(said, self.policy)
        queue = self.policy.queue(at)
        due = arrived + patience(said, queue)
        is_refused = queue.timeout_action == "reject"
        return Ask(
            request,
            reply,
            rows,
            key=key,
            level=at,
            arrived=arrived,
            late=min(deadline, due) if is_refused else deadline,
            delayed=math.inf if is_refused else due,
        )


def expired() -> Unavailable:
    """The refusal of a request that has waited for too long."""
    return _refusal("Request timeout expired")


def full() -> Unavailable:
    """The refusal of a request for which there is no room in the queue."""
    return _refusal("Exceeds maximum queue size")


def _refusal(message: str) -> Unavailable:
    error = Unavailable(message)
    error.headers = (("Retry-After", "1"),)
    return error

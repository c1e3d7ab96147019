"""What to do now with the requests that wait: pure logic, which is told the time.

A batch is the first request and those behind it that fit to it, in their order, and no request is ever split. The first
is the earliest of the most urgent level; one that has waited too long goes behind the others of its level
(`timeout_action: delay`). Those that do not fit to the first are passed over, and are first some time: nobody starves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from prefork.repository.config import Batching, LevelQueue

_MICROSECONDS = 1e6


class Waiting:
    """What the plan knows of a request. Times are seconds of one clock.

    rows: what it adds to a batch. key: requests with equal keys fit together; None fits to nothing.
    level: 1 is the most urgent. late: from then on it is refused. delayed: from then on it is behind the others of its level.
    """

    __slots__ = ("arrived", "delayed", "key", "late", "level", "rows")

    def __init__(
        self,
        rows: int,
        key: Any = None,
        *,
        level: int = 1,
        arrived: float = 0.0,
        late: float = math.inf,
        delayed: float = math.inf,
    ) -> None:
        self.rows = rows
        self.key = key
        self.level = level
        self.arrived = arrived
        self.late = late
        self.delayed = delayed


W = TypeVar("W", bound=Waiting)


class Decision(NamedTuple, Generic[W]):
    """batch: what to execute now, together; late: what to refuse; look: when to decide again if nothing comes before."""

    batch: list[W]
    late: list[W]
    look: float


def decide(waiting: Sequence[W], policy: Batching, now: float, *, full: bool = False) -> Decision[W]:
    """What to do now. waiting: in the order of arrival. full: nothing more is to come, so there is nothing to wait for.

    Now means: the largest preferred size that can be made; else as much as fits into `max_batch_size`, once nothing more
    fits or the earliest has waited for `max_batch_delay`.
    """
    late = [one for one in waiting if now >= one.late]
    queue = sorted((one for one in waiting if now < one.late), key=lambda one: (one.level, now >= one.delayed))
    if not queue:
        return Decision([], late, math.inf)
    batch, ready = _first_batch(queue, policy)
    if full or now >= ready:
        return Decision(batch, late, now)
    turns = (min(one.late, one.delayed if one.delayed > now else math.inf) for one in queue)
    return Decision([], late, min(ready, *turns))


def _first_batch(queue: Sequence[W], policy: Batching) -> tuple[list[W], float]:
    """The batch of the first request, and from when on it is not to wait for company."""
    first = queue[0]
    if first.key is None or first.rows >= policy.max_batch_size:
        return [first], -math.inf
    mates, is_full = _mates(queue, policy.max_batch_size)
    preferred = _preferred(mates, policy.preferred_batch_sizes)
    if preferred:
        return preferred, -math.inf
    if is_full:
        return mates, -math.inf
    return mates, min(one.arrived for one in mates) + policy.max_batch_delay / _MICROSECONDS


def _mates(queue: Sequence[W], room: int) -> tuple[list[W], bool]:
    """The first and what fits to it, and whether that is all that there is room for."""
    key = queue[0].key
    mates: list[W] = []
    for one in queue:
        if one.key is None or one.key != key:
            continue
        if one.rows > room:
            return mates, True  # a smaller one behind it does not overtake it
        mates.append(one)
        room -= one.rows
    return mates, room == 0


def _preferred(mates: list[W], sizes: Sequence[int]) -> list[W]:
    """As many as make the largest preferred size; none where there is no way to make one."""
    if not sizes:
        return []
    rows = count = 0
    for at, one in enumerate(mates, 1):
        rows += one.rows
        if rows in sizes:
            count = at
    return mates[:count]


def limit(policy: Batching) -> int:
    """Rows that are worth taking out of a queue that others take from too: what the largest wanted batch has."""
    return max(1, min(policy.max_batch_size, max(policy.preferred_batch_sizes, default=policy.max_batch_size)))


def level(parameters: Mapping[str, Any] | None, policy: Batching) -> int:
    """The level that a request's `priority` means: 1 is the most urgent.

    0, a level that there is not, and anything that is no number are the default, which without a word is the least urgent.
    """
    levels = max(1, policy.priority_levels)
    said = whole(parameters.get("priority")) if parameters else 0
    return said if 1 <= said <= levels else min(policy.default_priority or levels, levels)


def patience(parameters: Mapping[str, Any] | None, queue: Batching | LevelQueue) -> float:
    """Seconds that a request may wait: the queue's `queue_timeout`, or its own `timeout` where that is less."""
    limits = [queue.queue_timeout]
    if parameters and queue.allow_timeout_override:
        limits.append(whole(parameters.get("timeout")))
    return min((microseconds for microseconds in limits if microseconds > 0), default=math.inf) / _MICROSECONDS


def whole(value: Any) -> int:
    """A whole number from 0 on, as such or as text; 0 for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:18])
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

"""The class's own metrics, as Seldon Core names and labels them, and Seldon's counters of feedback.

A COUNTER adds to `KEY_total`, a GAUGE sets `KEY`, a TIMER, in milliseconds, goes into the histogram `KEY` in seconds.
Any thread may record. Source of the names, labels and buckets: the Seldon Core Python wrapper.
"""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prefork.errors import BadMetric
from prefork.metrics import series
from prefork.metrics.families import DROPPED
from prefork.metrics.ledger import SINK, Account
from prefork.settings import Settings

_FEEDBACK = "seldon_api_model_feedback"
_REWARD = "seldon_api_model_feedback_reward"
_NOTHING = "NOT_IMPLEMENTED"
_RESERVED = {"le", "worker_id"}
_INFINITE = len(series.SELDON_BUCKETS)
_REMEMBERED = 4096


def labels(settings: Settings) -> dict[str, str]:
    """The labels that each of the class's series has, as far as its tags do not say them."""
    image, _, version = (settings.unit_image or f"{_NOTHING}:{_NOTHING}").rpartition(":")
    deployment = settings.deployment or _NOTHING
    return {
        "deployment_name": deployment,
        "model_name": settings.unit_id or _NOTHING,
        "model_image": image or _NOTHING,
        "model_version": version or _NOTHING,
        "predictor_name": settings.predictor or _NOTHING,
        "predictor_version": settings.predictor_version or _NOTHING,
        "seldon_deployment_name": deployment,
        "image_name": image or _NOTHING,
        "image_version": version or _NOTHING,
    }


class Custom:
    """Records into a worker's account. counts_feedback: whether to count feedback."""

    def __init__(self, account: Account, *, counts_feedback: bool = True) -> None:
        self._account = account
        self._cells = account.cells
        self._counts_feedback = counts_feedback
        self._dropped = series.own(account, DROPPED)
        self._known: dict[Any, int] = {}

    def record(self, metrics: Iterable[Mapping[str, Any]], method: str) -> None:
        """Record checked metrics of a call. method: Seldon's word for it. Raises BadMetric for a value that is no number."""
        for metric in metrics:
            value = _number(metric)
            at = self._place(metric["type"], metric["key"], metric.get("tags"), method)
            with self._account.lock:
                _RECORD[metric["type"]](self, at, value)

    def feedback(self, reward: float) -> None:
        """Count a feedback, unless its reward is 0."""
        if reward and self._counts_feedback:
            counts = (
                {"type": "COUNTER", "key": _FEEDBACK, "value": 1},
                {"type": "COUNTER", "key": _REWARD, "value": reward},
            )
            self.record(counts, "feedback")

    def _count(self, at: int, value: float) -> None:
        if math.isfinite(value):
            self._cells[at] += value
        else:
            self._cells[self._dropped] += 1.0

    def _set(self, at: int, value: float) -> None:
        # The time is the system's own, the same for every process.
        self._cells[at], self._cells[at + 1] = value, time.monotonic()

    def _time(self, at: int, value: float) -> None:
        seconds = max(0.0, value / 1000)  # not a number is 0, too
        self._cells[at + bisect_left(series.SELDON_BUCKETS, seconds)] += 1.0
        self._cells[at + _INFINITE + 1] += seconds

    def _place(self, origin: str, key: Any, tags: Mapping[Any, Any] | None, method: str) -> int:
        what = (origin, key, method, tuple(tags.items()) if tags else None)
        try:
            at = self._known.get(what)
        except TypeError:  # a tag that cannot be hashed, such as a list
            return self._look(origin, key, tags, method)
        if at is None:
            at = self._look(origin, key, tags, method)
            if at != SINK and len(self._known) < _REMEMBERED:
                self._known[what] = at
        return at

    def _look(self, origin: str, key: Any, tags: Mapping[Any, Any] | None, method: str) -> int:
        name = _name(_text(key))
        named = {**{_label(tag): _text(value) for tag, value in (tags or {}).items()}, "method": method}
        at = series.custom(self._account, origin, name.removesuffix("_total") if origin == "COUNTER" else name, named)
        if at == SINK:
            with self._account.lock:
                self._cells[self._dropped] += 1.0
        return at


_RECORD: dict[str, Callable[[Custom, int, float], None]] = {
    "COUNTER": Custom._count,  # noqa: SLF001 - its own
    "GAUGE": Custom._set,  # noqa: SLF001 - its own
    "TIMER": Custom._time,  # noqa: SLF001 - its own
}


def _number(metric: Mapping[str, Any]) -> float:
    try:
        return float(metric["value"])
    except (TypeError, ValueError, OverflowError):
        raise BadMetric(f"Bad metric created during request: the value of {metric['key']!r} is no number") from None


def _text(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()


def _name(key: str) -> str:
    """A name that Prometheus takes: letters, digits, `_` and `:`, and no digit first."""
    return _opened(re.sub(r"[^a-zA-Z0-9_:]", "_", key))


def _label(tag: Any) -> str:
    name = _opened(re.sub(r"[^a-zA-Z0-9_]", "_", str(tag)))
    return f"exported_{name}" if name in _RESERVED else name


def _opened(name: str) -> str:
    return name if name and not name[0].isdigit() else f"_{name}"

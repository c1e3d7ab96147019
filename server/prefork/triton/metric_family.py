"""`MetricFamily`: a model's own metrics, which come out on `/metrics` with the next answer."""

from __future__ import annotations

import threading
from typing import Any

from prefork.model.custom_metrics import Metric as Change
from prefork.model.custom_metrics import create_counter, create_gauge
from prefork.triton.exception import TritonModelException

_changes: list[Change] = []
_lock = threading.Lock()


class Metric:
    """One series of a family."""

    def __init__(self, name: str, labels: dict[str, str], *, counts: bool) -> None:
        self._name = name
        self._labels = labels
        self._counts = counts
        self._value = 0.0

    def increment(self, value: float) -> None:
        """Add to it. Raises TritonModelException for a counter that would fall."""
        if self._counts and value < 0:
            raise TritonModelException(f"{self._name}: a counter cannot be decremented")
        self._change(self._value + value, value)

    def set(self, value: float) -> None:
        """Set it. Raises TritonModelException for a counter."""
        if self._counts:
            raise TritonModelException(f"{self._name}: a counter cannot be set")
        self._change(value, value)

    def value(self) -> float:
        """What it is in this process."""
        return self._value

    def _change(self, value: float, by: float) -> None:
        made = (
            create_counter(self._name, by, self._labels)
            if self._counts
            else create_gauge(self._name, value, self._labels)
        )
        with _lock:
            self._value = value
            _changes.append(made)


class MetricFamily:
    """Metrics of one name. Histograms are not recorded here."""

    COUNTER, GAUGE, HISTOGRAM = range(3)

    def __init__(self, name: str, description: str = "", kind: int = COUNTER) -> None:
        if kind not in (self.COUNTER, self.GAUGE):
            raise TritonModelException(f"{name}: counters and gauges are recorded here, histograms are not")
        self._name = name
        self._kind = kind
        self.description = description

    def Metric(self, labels: dict[str, str] | None = None, **_more: Any) -> Metric:  # noqa: N802 - Triton's name
        """A series with those labels."""
        return Metric(self._name, dict(labels or {}), counts=self._kind == self.COUNTER)


def changes() -> list[Change]:
    """What has changed since the last call."""
    with _lock:
        found = _changes.copy()
        _changes.clear()
    return found

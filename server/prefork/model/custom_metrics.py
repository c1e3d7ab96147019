"""The custom metrics that a model's `metrics()` or SeldonResponse gives: made, checked and stamped with the method.

A metric is `{"key": str, "type": "COUNTER" | "GAUGE" | "TIMER", "value": number, "tags"?: {str: str}}`; a TIMER's value is
milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prefork.errors import BadMetric

COUNTER, GAUGE, TIMER = "COUNTER", "GAUGE", "TIMER"

Metric = dict[str, Any]


def create_counter(key: str, value: float, tags: dict[str, str] | None = None) -> Metric:
    """A count to add."""
    return _metric(key, COUNTER, value, tags)


def create_gauge(key: str, value: float, tags: dict[str, str] | None = None) -> Metric:
    """A value that replaces the last one."""
    return _metric(key, GAUGE, value, tags)


def create_timer(key: str, value: float, tags: dict[str, str] | None = None) -> Metric:
    """A duration in milliseconds."""
    return _metric(key, TIMER, value, tags)


def are_valid(metrics: Any) -> bool:
    """Whether it is a list of metrics that can be recorded."""
    return isinstance(metrics, Sequence) and not isinstance(metrics, str) and all(map(_is_valid, metrics))


def stamped(metrics: Any, method: str) -> list[Metric]:
    """Checked metrics, those with tags as copies that carry the `method` too; None is no metrics.

    Raises BadMetric, quoting what is none.
    """
    if metrics is None:
        return []
    if not are_valid(metrics):
        raise BadMetric(f"Bad metric created during request: {json.dumps(metrics, default=repr)}")
    return [_stamp(metric, method) for metric in metrics]


def _metric(key: str, kind: str, value: float, tags: dict[str, str] | None) -> Metric:
    metric: Metric = {"key": key, "type": kind, "value": value}
    if tags:
        metric["tags"] = tags
    return metric


def _is_valid(metric: Any) -> bool:
    if not isinstance(metric, dict) or not {"key", "type", "value"} <= metric.keys():
        return False
    if metric["type"] not in (COUNTER, GAUGE, TIMER) or not isinstance(metric.get("tags") or {}, Mapping):
        return False
    try:
        metric["value"] + 1
    except TypeError:
        return False
    return True


def _stamp(metric: Metric, method: str) -> Metric:
    tags = metric.get("tags")
    return {**metric, "tags": {**tags, "method": method}} if tags else metric

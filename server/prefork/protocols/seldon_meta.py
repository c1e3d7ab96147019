"""The `meta` object of Seldon's messages: what a request's may be, and what an answer's is.

Tags and metrics of a request travel on to the answer, its puid is echoed, its routing is not.
Source of the rules: the Seldon Core Python wrapper.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prefork.errors import BadRequest
from prefork.payload import Kind, Payload

_FIELDS = {
    "tags": (dict, "an object"),
    "metrics": (list, "a list"),
    "requestPath": (dict, "an object"),
    "routing": (dict, "an object"),
}
_OWN = {"route", "send_feedback"}
"""Methods whose answers keep nothing of the request's meta but the puid."""


def checked(meta: Any, field: str = "meta") -> dict[str, Any] | None:
    """The object itself, or None for a null. Raises BadRequest that names the field that has another type."""
    if meta is None:
        return None
    if not isinstance(meta, dict):
        raise BadRequest(f"{field} must be an object, got {type(meta).__name__}")
    for name, (kind, article) in _FIELDS.items():
        if not isinstance(meta.get(name), (kind, type(None))):
            raise BadRequest(f"{field}.{name} must be {article}, got {type(meta[name]).__name__}")
    return meta


def of_answer(
    answer: Payload, request: Payload, unit_id: str, unit_image: str, *, include_metrics: bool
) -> dict[str, Any]:
    """The answer's meta: the request's, or those of all its messages from left to right, and what the model adds."""
    metas = _of_request(request)
    if not (metas or answer.tags or answer.metrics or unit_id):
        return {}
    kept = [] if request.method in _OWN else metas
    metrics = [metric for meta in kept for metric in meta.get("metrics") or ()]
    path = {unit_id: unit_image or "NOT_IMPLEMENTED:NOT_IMPLEMENTED"} if unit_id else {}
    found = {
        "metrics": [*metrics, *(answer.metrics or ())] if include_metrics else metrics,
        "requestPath": _merged(path, (meta.get("requestPath") for meta in kept)),
        "tags": _merged(_merged({}, (meta.get("tags") for meta in kept)), [answer.tags]),
    }
    result: dict[str, Any] = {name: value for name, value in found.items() if value}
    if metas and metas[0].get("puid") is not None:
        result["puid"] = metas[0]["puid"]
    return result


def _of_request(request: Payload) -> list[dict[str, Any]]:
    """The meta of the request, or of each of its messages, the first one's first; empty if none has any."""
    if request.kind is not Kind.MANY:
        return [request.meta] if request.meta else []
    metas = [message.meta or {} for message in request.value]
    return metas if any(metas) else []


def _merged(first: dict[str, Any], others: Iterable[dict[str, Any] | None]) -> dict[str, Any]:
    for other in others:
        first.update(other or {})
    return first

"""Seldon v1's paths. They have no model in them: they mean the only one."""

from __future__ import annotations

from prefork.endpoints.site import Call, Site, headers
from prefork.errors import PreforkError
from prefork.http import Request, Response
from prefork.payload import Kind, Payload
from prefork.protocols import json, seldon


def _seldon(site: Site, request: Request, method: str) -> Call:
    settings, instance = site.settings, site.catalogue.main().instance
    payload = seldon.decode(
        request,
        method,
        raw=method in instance.spec.raw,
        passthrough=settings.payload_passthrough and method == "predict",
        unit_id=settings.unit_id,
        max_depth=settings.max_depth,
    )
    if settings.forward_headers:
        payload.meta = {**(payload.meta or {}), "headers": headers(request)}
    return Call(instance, payload, lambda answer: seldon.encode(answer, payload, site.context))


def predict(site: Site, request: Request) -> Call:
    """Seldon's predict."""
    return _seldon(site, request, "predict")


def transform_input(site: Site, request: Request) -> Call:
    """Seldon's transform-input."""
    return _seldon(site, request, "transform_input")


def transform_output(site: Site, request: Request) -> Call:
    """Seldon's transform-output."""
    return _seldon(site, request, "transform_output")


def route(site: Site, request: Request) -> Call:
    """Seldon's route: which branch a router chooses."""
    return _seldon(site, request, "route")


def aggregate(site: Site, request: Request) -> Call:
    """Seldon's aggregate: many messages in, one out."""
    return _seldon(site, request, "aggregate")


def send_feedback(site: Site, request: Request) -> Call:
    """Seldon's send-feedback."""
    call = _seldon(site, request, "send_feedback")
    site.meter.custom.feedback(seldon.reward(call.payload))
    return call


def health_status(site: Site, request: Request) -> Call:
    """Seldon's health/status: what the class says of itself."""
    payload = Payload(Kind.JSON, None, method="health_status")
    return Call(site.catalogue.main().instance, payload, lambda answer: seldon.encode(answer, payload, site.context))


def seldon_metadata(site: Site, request: Request) -> Response:
    """Seldon's metadata, made once when the model was loaded."""
    metadata = site.catalogue.main().metadata
    if isinstance(metadata, PreforkError):
        raise metadata.with_traceback(None)  # it would grow by each request
    return Response(json.encode(metadata, sort=True))


def ping(site: Site, request: Request) -> Response:
    """Seldon's health/ping."""
    return Response(b"pong", content_type="text/html; charset=utf-8")

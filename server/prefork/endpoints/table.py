"""The route table: both fronts, the OpenAPI document and the docs page read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefork import __version__, openapi, pages
from prefork.endpoints import example, inference, probes, repository, scoring, seldon_v1, statistics, workers
from prefork.endpoints.site import Site
from prefork.errors import NotFound
from prefork.http import Request, Response
from prefork.payload import ModelSpec
from prefork.protocols import json, mlflow, seldon_types, v1, v2_types
from prefork.readiness import Readiness
from prefork.routes import Route

_SEVERAL = ModelSpec("MODEL")
"""Whom the documents speak of where there is no one model."""


def openapi_document(site: Site, request: Request) -> Response:
    """The OpenAPI document of every path and of this model's signature."""
    spec = _main(site)
    return Response(
        json.encode(openapi.document(spec, title=spec.name, server_version=__version__, routes=documented()))
    )


def seldon_document(site: Site, request: Request) -> Response:
    """The OpenAPI document of Seldon's paths only."""
    return Response(json.encode(openapi.seldon_document(documented(), server_version=__version__)))


def docs(site: Site, request: Request) -> Response:
    """The page with the endpoints and the try-it."""
    page = pages.docs_page(_main(site), documented(), server_version=__version__)
    return Response(page, content_type="text/html; charset=utf-8")


def documented() -> list[openapi.RouteDoc]:
    """The route table as the documents need it."""
    return [openapi.RouteDoc(r.path, r.methods, r.protocol, r.summary, r.request, r.response) for r in ROUTES]


def _main(site: Site) -> ModelSpec:
    try:
        return site.catalogue.main().described
    except NotFound:
        return _SEVERAL


_BOTH = ("GET", "POST")


def _row(path: str, methods: tuple[str, ...], endpoint: Callable[..., Any], protocol: str, **more: Any) -> Route:
    summary = (endpoint.__doc__ or "").partition("\n")[0]
    calls_model = endpoint.__annotations__.get("return") == "Call"
    return Route(path, methods, endpoint, protocol, summary, calls_model, **more)


def _message(
    path: str, endpoint: Callable[..., Any], methods: tuple[str, ...] = _BOTH, body: type | None = None
) -> Route:
    request = body or seldon_types.SeldonMessage
    return _row(path, methods, endpoint, "seldon", request=request, response=seldon_types.SeldonMessage)


def _both(path: str, methods: tuple[str, ...], endpoint: Callable[..., Any], **more: Any) -> list[Route]:
    """A V2 path under a model and under one of its versions."""
    return [
        _row(f"/v2/models/{{model}}{version}{path}", methods, endpoint, "v2", **more)
        for version in ("", "/versions/{version}")
    ]


def _operation(name: str, endpoint: Callable[..., Any]) -> Route:
    """On a model of the repository."""
    path = f"/v2/repository/models/{{model}}/{name}"
    return _row(path, ("POST",), endpoint, "v2", request=repository.ControlRequest, lasts=True)


_GENERATE = {"request": v2_types.GenerateRequest, "response": v2_types.GenerateResponse}
_V1 = {"request": v1.PredictRequest, "response": v1.PredictResponse}

ROUTES: list[Route] = [
    _message("/predict", seldon_v1.predict),
    _message("/api/v1.0/predictions", seldon_v1.predict, ("POST",)),
    _message("/api/v0.1/predictions", seldon_v1.predict, ("POST",)),
    _message("/transform-input", seldon_v1.transform_input),
    _message("/transform-output", seldon_v1.transform_output),
    _message("/route", seldon_v1.route),
    _message("/aggregate", seldon_v1.aggregate, body=seldon_types.SeldonMessageList),
    _message("/send-feedback", seldon_v1.send_feedback, body=seldon_types.Feedback),
    _message("/api/v1.0/feedback", seldon_v1.send_feedback, ("POST",), seldon_types.Feedback),
    _message("/api/v0.1/feedback", seldon_v1.send_feedback, ("POST",), seldon_types.Feedback),
    _row("/health/status", ("GET",), seldon_v1.health_status, "seldon", response=seldon_types.SeldonMessage),
    _row("/api/v1.0/health/status", ("GET",), seldon_v1.health_status, "seldon", response=seldon_types.SeldonMessage),
    _row("/health/ping", ("GET",), seldon_v1.ping, "seldon"),
    _row("/metadata", ("GET",), seldon_v1.seldon_metadata, "seldon"),
    _row("/api/v1.0/metadata", ("GET",), seldon_v1.seldon_metadata, "seldon"),
    _row("/v2", ("GET",), probes.server_metadata, "v2", response=v2_types.ServerMetadata),
    _row("/v2/health/live", ("GET",), probes.live, "v2"),
    _row("/v2/health/ready", ("GET",), probes.ready, "v2"),
    *_both("", ("GET",), inference.model_metadata, response=v2_types.ModelMetadata),
    *_both("/ready", ("GET",), inference.model_ready),
    *_both("/infer", ("POST",), inference.infer, request=v2_types.InferRequest, response=v2_types.InferResponse),
    *_both("/generate", ("POST",), inference.generate_one, **_GENERATE),
    *_both("/generate_stream", ("POST",), inference.generate_stream, **_GENERATE),
    *_both("/config", ("GET",), repository.model_config),
    *_both("/example", ("GET",), example.example, response=example.Example, off_loop=True),
    *_both("/stats", ("GET",), statistics.model_statistics, response=statistics.ModelStatistics, off_loop=True),
    _row(
        "/v2/models/stats",
        ("GET",),
        statistics.all_statistics,
        "v2",
        response=statistics.ModelStatistics,
        off_loop=True,
    ),
    _row(
        "/v2/repository/index",
        ("POST",),
        repository.repository_index,
        "v2",
        request=repository.IndexRequest,
        off_loop=True,
    ),
    _operation("load", repository.load_model),
    _operation("unload", repository.unload_model),
    _row("/v2/repository/{repository}/index", ("POST",), repository.named_repository, "v2"),
    _row("/v2/repository/{repository}/models/{model}/load", ("POST",), repository.named_load, "v2"),
    _row("/v2/repository/{repository}/models/{model}/unload", ("POST",), repository.named_unload, "v2"),
    _row("/v1/models", ("GET",), scoring.v1_models, "v1"),
    _row("/v1/models/{model}", ("GET",), scoring.v1_status, "v1", response=v1.ModelStatus),
    _row("/v1/models/{model}/versions/{version}", ("GET",), scoring.v1_status, "v1", response=v1.ModelStatus),
    _row("/v1/models/{model}/metadata", ("GET",), scoring.v1_metadata, "v1"),
    _row("/v1/models/{model}:predict", ("POST",), scoring.v1_predict, "v1", **_V1),
    _row("/v1/models/{model}/versions/{version}:predict", ("POST",), scoring.v1_predict, "v1", **_V1),
    _row(
        "/invocations", ("POST",), scoring.invocations, "mlflow", request=mlflow.Invocation, response=mlflow.Predictions
    ),
    _row("/ping", ("GET",), scoring.mlflow_ping, "mlflow"),
    _row("/health", ("GET",), scoring.mlflow_ping, "mlflow"),
    _row("/version", ("GET",), scoring.mlflow_version, "mlflow"),
    _row("/live", ("GET",), probes.live, "prefork"),
    _row("/ready", ("GET",), probes.readiness, "prefork", response=Readiness),
    _row("/v2/workers/recycle", ("POST",), workers.recycle, "prefork", response=workers.Recycled),
    _row("/metrics", ("GET",), probes.metrics, "prefork", off_loop=True),
    _row("/openapi.json", ("GET",), openapi_document, "prefork"),
    _row("/seldon.json", ("GET",), seldon_document, "prefork"),
    _row("/docs", ("GET",), docs, "prefork"),
    _row("/", ("GET",), docs, "prefork"),
]

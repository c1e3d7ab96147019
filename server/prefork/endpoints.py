"""What each path does: plain functions from a decoded request to a response, or to the call of the model behind it.

The route table at the end is data: both fronts, the OpenAPI document and the docs page read the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from prefork import __version__, openapi, pages
from prefork import readiness as readiness_page
from prefork.crew import Alone, Crew
from prefork.errors import NotFound, PreforkError
from prefork.http import Request, Response
from prefork.instance import Instance
from prefork.metrics import Meter
from prefork.payload import Kind, ModelSpec, Payload
from prefork.protocols import generate, json, mlflow, seldon, seldon_types, sse, timeouts, v1, v2, v2_types
from prefork.routes import Route
from prefork.settings import Settings

EXTENSIONS = ("binary_tensor_data", "classification", "parameters", "generate")
"""V2's extensions, those that are served and no other."""


class Site(msgspec.Struct):
    """What the endpoints serve: one instance and what was said about it.

    context: how Seldon answers are written. metadata: Seldon's metadata body, or the error of making it. described: the
    instance's spec with what `init_metadata()` declares, for V2's metadata. meter: where this worker counts.
    crew: the workers that serve it.
    """

    instance: Instance
    settings: Settings
    context: seldon.Context
    metadata: dict[str, Any] | PreforkError
    described: ModelSpec
    meter: Meter = msgspec.field(default_factory=Meter.private)
    crew: Crew = msgspec.field(default_factory=Alone)

    @property
    def spec(self) -> ModelSpec:
        """The instance's own description."""
        return self.instance.spec


class Call(msgspec.Struct, gc=False):
    """A request to the model, and how its answer goes out: `encode` for one, `event` for each part of a stream.

    of_stream: the one answer may be the only part of a stream. timeout: seconds that the request says it has.
    """

    payload: Payload
    encode: Callable[[Payload], Response]
    event: Callable[[Payload], bytes] | None = None
    of_stream: bool = False
    timeout: float | None = None


# --- Seldon v1 ---------------------------------------------------------------------------------------------------


def _seldon(site: Site, request: Request, method: str) -> Call:
    settings = site.settings
    payload = seldon.decode(
        request,
        method,
        raw=method in site.instance.spec.raw,
        passthrough=settings.payload_passthrough and method == "predict",
        unit_id=settings.unit_id,
        max_depth=settings.max_depth,
    )
    if settings.forward_headers:
        payload.meta = {**(payload.meta or {}), "headers": _headers(request)}
    return Call(payload, lambda answer: seldon.encode(answer, payload, site.context))


def _headers(request: Request) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}


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
    return Call(payload, lambda answer: seldon.encode(answer, payload, site.context))


def seldon_metadata(site: Site, request: Request) -> Response:
    """Seldon's metadata, made once when the model was loaded."""
    if isinstance(site.metadata, PreforkError):
        raise site.metadata
    return Response(json.encode(site.metadata, sort=True))


def ping(site: Site, request: Request) -> Response:
    """Seldon's health/ping."""
    return Response(b"pong", content_type="text/html; charset=utf-8")


# --- Open Inference Protocol V2 ----------------------------------------------------------------------------------


def _served(site: Site, request: Request) -> ModelSpec:
    """The spec of the model in the path. Raises NotFound when another one, or another version, is meant."""
    spec = site.instance.spec
    name, version = request.params["model"], request.params.get("version", spec.version)
    if name != spec.name:
        raise NotFound(f"Request for unknown model: '{name[:100]}' is not found")
    if version != spec.version:
        raise NotFound(f"Request for unknown model: '{name}' version {version[:20]} is not found")
    return spec


def live(site: Site, request: Request) -> Response:
    """Whether the process answers; it does."""
    return Response(content_type="text/plain")


def _is_ready(site: Site) -> bool:
    return site.instance.ready() and not site.crew.is_draining


def ready(site: Site, request: Request) -> Response:
    """Whether the model can be asked: 200 or 503."""
    return Response(content_type="text/plain", status=200 if _is_ready(site) else 503)


def readiness(site: Site, request: Request) -> Response:
    """Whether requests should be sent here, 200 or 503, and which worker is in which state since when."""
    return readiness_page.encode(site.spec, site.crew, is_ready=_is_ready(site))


def model_ready(site: Site, request: Request) -> Response:
    """Whether that model can be asked."""
    _served(site, request)
    return ready(site, request)


def server_metadata(site: Site, request: Request) -> Response:
    """V2's server metadata."""
    return v2.encode_server("prefork", __version__, EXTENSIONS)


def model_metadata(site: Site, request: Request) -> Response:
    """V2's model metadata: the signature's inputs and outputs."""
    _served(site, request)
    return v2.encode_metadata(site.described)


def infer(site: Site, request: Request) -> Call:
    """V2's inference, JSON and binary."""
    spec = _served(site, request)
    payload, wanted = v2.decode(request, spec, max_depth=site.settings.max_depth)
    _forward(site, request, payload)
    timeout = timeouts.seconds(payload.parameters, spec) if payload.parameters else None
    return Call(payload, lambda answer: v2.encode(answer, wanted, spec, site.settings.nan), timeout=timeout)


def _forward(site: Site, request: Request, payload: Payload) -> None:
    """Give the model as `meta` what these protocols have beside the tensors: parameters, and headers if asked for."""
    if payload.parameters:
        payload.meta = {"parameters": dict(payload.parameters)}
    if site.settings.forward_headers:
        payload.meta = {**(payload.meta or {}), "headers": _headers(request)}


def _generated(site: Site, request: Request) -> tuple[Payload, Callable[[Payload], bytes]]:
    spec = _served(site, request)
    payload, request_id = generate.decode_generate(request, spec, max_depth=site.settings.max_depth)
    _forward(site, request, payload)
    return payload, lambda answer: generate.encode_generated(answer, spec, request_id, site.settings.nan)


def generate_one(site: Site, request: Request) -> Call:
    """Triton's generate: exactly one answer, as one JSON object."""
    payload, encode = _generated(site, request)
    timeout = timeouts.seconds(payload.parameters, site.spec)
    return Call(payload, lambda answer: Response(encode(answer)), of_stream=True, timeout=timeout)


def generate_stream(site: Site, request: Request) -> Call:
    """Triton's generate_stream: each answer is a server-sent event."""
    payload, encode = _generated(site, request)
    timeout = timeouts.seconds(payload.parameters, site.spec)
    event = lambda answer: sse.event(encode(answer))  # noqa: E731 - beside its sibling
    return Call(payload, lambda answer: Response(encode(answer)), event=event, timeout=timeout)


# --- TF-Serving's V1, MLflow -------------------------------------------------------------------------------------


def v1_models(site: Site, request: Request) -> Response:
    """KServe's list of models."""
    return Response(json.encode({"models": [site.spec.name]}))


def v1_status(site: Site, request: Request) -> Response:
    """TF-Serving's model status."""
    return v1.encode_status(_served(site, request))


def v1_metadata(site: Site, request: Request) -> Response:
    """TF-Serving's model metadata."""
    return v1.encode_metadata(_served(site, request))


def v1_predict(site: Site, request: Request) -> Call:
    """TF-Serving's predict, rows and columns."""
    spec = _served(site, request)
    payload, form = v1.decode(request, spec, max_depth=site.settings.max_depth)
    _forward(site, request, payload)
    return Call(payload, lambda answer: v1.encode(answer, form, spec, site.settings.nan))


def invocations(site: Site, request: Request) -> Call:
    """MLflow's scoring."""
    spec = site.spec
    payload, form = mlflow.decode(request, spec, max_depth=site.settings.max_depth)
    _forward(site, request, payload)
    return Call(payload, lambda answer: mlflow.encode(answer, form, spec, site.settings.nan))


def mlflow_ping(site: Site, request: Request) -> Response:
    """MLflow's ping and health."""
    return mlflow.encode_ping(ready=site.instance.ready())


def mlflow_version(site: Site, request: Request) -> Response:
    """MLflow's version: ours."""
    return mlflow.encode_version(__version__)


# --- pages -------------------------------------------------------------------------------------------------------


def metrics(site: Site, request: Request) -> Response:
    """The metrics of all workers, in Prometheus's text format or in OpenMetrics."""
    content_type, body = site.meter.page(request.header(b"accept"))
    return Response(body, content_type=content_type)


def openapi_document(site: Site, request: Request) -> Response:
    """The OpenAPI document of every path and of this model's signature."""
    document = openapi.document(site.spec, title=site.spec.name, server_version=__version__, routes=documented())
    return Response(json.encode(document))


def seldon_document(site: Site, request: Request) -> Response:
    """The OpenAPI document of Seldon's paths only."""
    return Response(json.encode(openapi.seldon_document(documented(), server_version=__version__)))


def docs(site: Site, request: Request) -> Response:
    """The page with the endpoints and the try-it."""
    page = pages.docs_page(site.spec, documented(), server_version=__version__)
    return Response(page, content_type="text/html; charset=utf-8")


def documented() -> list[openapi.RouteDoc]:
    """The route table as the documents need it."""
    return [openapi.RouteDoc(r.path, r.methods, r.protocol, r.summary, r.request, r.response) for r in ROUTES]


# --- errors ------------------------------------------------------------------------------------------------------

_ENCODERS: dict[str, Callable[[PreforkError], Response]] = {
    "/v2": v2.encode_error,
    "/v1": v1.encode_error,
    "/invocations": mlflow.encode_error,
    "/ping": mlflow.encode_error,
    "/version": mlflow.encode_error,
}


def encode_error(path: str, error: PreforkError) -> Response:
    """The error in the shape that the clients of that path, and of its neighbours, read: by the path's first part."""
    first = "/" + path.lstrip("/").partition("/")[0]
    return _ENCODERS.get(first, seldon.encode_error)(error)


def stream_error(error: PreforkError) -> bytes:
    """A stream's last event when it breaks off."""
    return sse.event(generate.encode_stream_error(error))


# --- the table ---------------------------------------------------------------------------------------------------

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


_GENERATE = {"request": v2_types.GenerateRequest, "response": v2_types.GenerateResponse}
_V1 = {"request": v1.PredictRequest, "response": v1.PredictResponse}

ROUTES: list[Route] = [
    _message("/predict", predict),
    _message("/api/v1.0/predictions", predict, ("POST",)),
    _message("/api/v0.1/predictions", predict, ("POST",)),
    _message("/transform-input", transform_input),
    _message("/transform-output", transform_output),
    _message("/route", route),
    _message("/aggregate", aggregate, body=seldon_types.SeldonMessageList),
    _message("/send-feedback", send_feedback, body=seldon_types.Feedback),
    _message("/api/v1.0/feedback", send_feedback, ("POST",), seldon_types.Feedback),
    _message("/api/v0.1/feedback", send_feedback, ("POST",), seldon_types.Feedback),
    _row("/health/status", ("GET",), health_status, "seldon", response=seldon_types.SeldonMessage),
    _row("/api/v1.0/health/status", ("GET",), health_status, "seldon", response=seldon_types.SeldonMessage),
    _row("/health/ping", ("GET",), ping, "seldon"),
    _row("/metadata", ("GET",), seldon_metadata, "seldon"),
    _row("/api/v1.0/metadata", ("GET",), seldon_metadata, "seldon"),
    _row("/v2", ("GET",), server_metadata, "v2", response=v2_types.ServerMetadata),
    _row("/v2/health/live", ("GET",), live, "v2"),
    _row("/v2/health/ready", ("GET",), ready, "v2"),
    *_both("", ("GET",), model_metadata, response=v2_types.ModelMetadata),
    *_both("/ready", ("GET",), model_ready),
    *_both("/infer", ("POST",), infer, request=v2_types.InferRequest, response=v2_types.InferResponse),
    *_both("/generate", ("POST",), generate_one, **_GENERATE),
    *_both("/generate_stream", ("POST",), generate_stream, **_GENERATE),
    _row("/v1/models", ("GET",), v1_models, "v1"),
    _row("/v1/models/{model}", ("GET",), v1_status, "v1", response=v1.ModelStatus),
    _row("/v1/models/{model}/versions/{version}", ("GET",), v1_status, "v1", response=v1.ModelStatus),
    _row("/v1/models/{model}/metadata", ("GET",), v1_metadata, "v1"),
    _row("/v1/models/{model}:predict", ("POST",), v1_predict, "v1", **_V1),
    _row("/v1/models/{model}/versions/{version}:predict", ("POST",), v1_predict, "v1", **_V1),
    _row("/invocations", ("POST",), invocations, "mlflow", request=mlflow.Invocation, response=mlflow.Predictions),
    _row("/ping", ("GET",), mlflow_ping, "mlflow"),
    _row("/health", ("GET",), mlflow_ping, "mlflow"),
    _row("/version", ("GET",), mlflow_version, "mlflow"),
    _row("/live", ("GET",), live, "prefork"),
    _row("/ready", ("GET",), readiness, "prefork", response=readiness_page.Readiness),
    _row("/metrics", ("GET",), metrics, "prefork", off_loop=True),
    _row("/openapi.json", ("GET",), openapi_document, "prefork"),
    _row("/seldon.json", ("GET",), seldon_document, "prefork"),
    _row("/docs", ("GET",), docs, "prefork"),
    _row("/", ("GET",), docs, "prefork"),
]

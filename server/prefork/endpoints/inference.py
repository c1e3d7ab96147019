"""V2's paths under a model: what it takes, and asking it."""

from __future__ import annotations

from collections.abc import Callable

from prefork.batch.plan import level
from prefork.catalogue import Served
from prefork.endpoints.site import Call, Site, forward
from prefork.errors import BadRequest
from prefork.http import Request, Response
from prefork.payload import Kind, ModelSpec, Payload
from prefork.protocols import generate, priorities, sse, timeouts, v2


def served(site: Site, request: Request) -> Served:
    """The model in the path, in the version there. Raises as `Catalogue.find` does."""
    params = request.params
    return site.catalogue.find(params["model"], params.get("version"))


def model_ready(site: Site, request: Request) -> Response:
    """Whether that model can be asked."""
    is_ready = served(site, request).instance.ready() and not site.crew.is_draining
    return Response(content_type="text/plain", status=200 if is_ready else 503)


def model_metadata(site: Site, request: Request) -> Response:
    """V2's model metadata: the signature's inputs and outputs."""
    described = served(site, request).described
    return v2.encode_metadata(described, site.catalogue.versions(described.name))


def infer(site: Site, request: Request) -> Call:
    """V2's inference, JSON and binary."""
    found = served(site, request)
    instance, spec = found.instance, found.spec
    payload, wanted = v2.decode(request, spec, max_depth=site.settings.max_depth)
    if spec.max_rows:
        _check_rows(payload, spec)
    forward(site, request, payload)
    timeout = _timeout(found, payload) if payload.parameters else None
    return Call(instance, payload, lambda answer: v2.encode(answer, wanted, spec, site.settings.nan), timeout=timeout)


def generate_one(site: Site, request: Request) -> Call:
    """Triton's generate: exactly one answer, as one JSON object."""
    call, encode = _generated(site, request)
    call.encode, call.of_stream = lambda answer: Response(encode(answer)), True
    return call


def generate_stream(site: Site, request: Request) -> Call:
    """Triton's generate_stream: each answer is a server-sent event."""
    call, encode = _generated(site, request)
    call.event = lambda answer: sse.event(encode(answer))
    return call


def _check_rows(payload: Payload, spec: ModelSpec) -> None:
    """Raise BadRequest for a request of more rows than the model takes at once. The words are Triton's."""
    for array in payload.value.values() if payload.kind is Kind.TENSORS else ():
        if array.ndim and array.shape[0] > spec.max_rows:
            raise BadRequest(f"inference request batch-size must be <= {spec.max_rows} for '{spec.name}'")


def _timeout(found: Served, payload: Payload) -> float | None:
    """Seconds that the request gives itself, where the model's queue lets it say so. Raises BadRequest, for a wrong priority too."""
    priorities.check(payload.parameters, found.spec)
    seconds = timeouts.seconds(payload.parameters, found.spec)
    batching = found.config.batching
    if seconds is None or batching is None:
        return seconds
    return seconds if batching.queue(level(payload.parameters, batching)).allow_timeout_override else None


def _generated(site: Site, request: Request) -> tuple[Call, Callable[[Payload], bytes]]:
    found = served(site, request)
    instance, spec = found.instance, found.spec
    payload, request_id = generate.decode_generate(request, spec, max_depth=site.settings.max_depth)
    forward(site, request, payload)

    def encode(answer: Payload) -> bytes:
        return generate.encode_generated(answer, spec, request_id, site.settings.nan)

    timeout = _timeout(found, payload)
    return Call(instance, payload, lambda answer: Response(encode(answer)), timeout=timeout), encode

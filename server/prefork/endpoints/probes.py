"""Whether the server lives and is ready, and its metrics."""

from __future__ import annotations

from prefork import __version__
from prefork import readiness as page
from prefork.endpoints.site import Site
from prefork.http import Request, Response
from prefork.protocols import v2

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "generate",
    "model_configuration",
    "parameters",
    "schedule_policy",
    "statistics",
)
"""V2's extensions by Triton's names, those that are served everywhere and no other."""

_CONTROL = "model_repository"
"""The one that is served where models are loaded by request."""


def live(site: Site, request: Request) -> Response:
    """Whether the process answers; it does."""
    return Response(content_type="text/plain")


def ready(site: Site, request: Request) -> Response:
    """Whether requests should be sent here: 200 or 503."""
    return Response(content_type="text/plain", status=200 if _is_ready(site) else 503)


def readiness(site: Site, request: Request) -> Response:
    """Whether requests should be sent here, 200 or 503, and which worker is in which state since when."""
    return page.encode(site.catalogue, site.crew, is_ready=_is_ready(site))


def server_metadata(site: Site, request: Request) -> Response:
    """V2's server metadata."""
    control = (_CONTROL,) if site.settings.control == "explicit" else ()
    return v2.encode_server("prefork", __version__, (*EXTENSIONS, *control))


def metrics(site: Site, request: Request) -> Response:
    """The metrics of all workers, in Prometheus's text format or in OpenMetrics."""
    content_type, body = site.meter.page(request.header(b"accept"))
    return Response(body, content_type=content_type)


def _is_ready(site: Site) -> bool:
    return site.catalogue.is_ready() and not site.crew.is_draining

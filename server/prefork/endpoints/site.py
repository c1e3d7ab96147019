"""What an endpoint is given beside the request, and what it gives back when the model is to be asked."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from prefork.catalogue import Catalogue
from prefork.control import Control, Fixed
from prefork.crew import Alone, Crew
from prefork.http import Request, Response
from prefork.instance import Instance
from prefork.metrics import Meter
from prefork.payload import Payload
from prefork.protocols import seldon
from prefork.settings import Settings


class Site(msgspec.Struct):
    """What the endpoints serve.

    context: how Seldon answers are written. meter: where this worker counts. crew: the workers that serve it. control: who loads
    and unloads the models.
    """

    catalogue: Catalogue
    settings: Settings
    context: seldon.Context
    meter: Meter = msgspec.field(default_factory=Meter.private)
    crew: Crew = msgspec.field(default_factory=Alone)
    control: Control = msgspec.field(default_factory=Fixed)


class Call(msgspec.Struct, gc=False):
    """A request to a model, and how its answer goes out: `encode` for one, `event` for each part of a stream.

    of_stream: the one answer may be the only part of a stream. timeout: seconds that the request says it has.
    """

    instance: Instance
    payload: Payload
    encode: Callable[[Payload], Response]
    event: Callable[[Payload], bytes] | None = None
    of_stream: bool = False
    timeout: float | None = None

    @property
    def is_counted(self) -> bool:
        """Whether requests to this model are counted by its name."""
        return getattr(self.instance, "tells_cost", False)


def headers(request: Request) -> dict[str, str]:
    """The request's headers as a model sees them."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}


def forward(site: Site, request: Request, payload: Payload) -> None:
    """Give the model as `meta` what V2, V1 and MLflow have beside the tensors: parameters, and headers if asked for."""
    if payload.parameters:
        payload.meta = {"parameters": dict(payload.parameters)}
    if site.settings.forward_headers:
        payload.meta = {**(payload.meta or {}), "headers": headers(request)}

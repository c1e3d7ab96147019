"""A request that works: the model's own example, or one made up from its signature, in the protocols that can carry it."""

from __future__ import annotations

from typing import Any

import msgspec

from prefork.endpoints.inference import served
from prefork.endpoints.site import Site
from prefork.errors import PreforkError
from prefork.http import Request, Response
from prefork.payload import ModelSpec
from prefork.protocols import examples, json


class Sent(msgspec.Struct):
    """A POST of JSON. body: null where it is too long to be told; the line under `curl` makes it."""

    path: str
    body: dict[str, Any] | None


class Example(msgspec.Struct):
    """The sample request by protocol, null where that cannot carry it. curl: a shell line for each that can."""

    v2: Sent | None
    seldon: Sent | None
    v1: Sent | None
    curl: dict[str, str]


def example(site: Site, request: Request) -> Response:
    """A sample request of the right shape, as bodies and as curl lines."""
    spec = served(site, request).described
    version = request.params.get("version", "")
    return Response(
        json.encode(examples.example(spec, _url(site, request), version, seldon=_is_main(site, spec, version)))
    )


def _is_main(site: Site, spec: ModelSpec, version: str) -> bool:
    """Whether paths without a name mean this model, in this version."""
    try:
        main = site.catalogue.main().spec
    except PreforkError:
        return False
    return main.name == spec.name and version in {"", main.version}


def _url(site: Site, request: Request) -> str:
    """Where the client has found the server."""
    bind = site.settings.bind
    return bind if bind.startswith("unix:") else f"http://{request.header(b'host') or bind}"

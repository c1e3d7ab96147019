"""Having the workers replaced, by an operator."""

from __future__ import annotations

import msgspec

from prefork import admin
from prefork.audit import audited
from prefork.endpoints.site import Site
from prefork.errors import Unavailable
from prefork.http import Request, Response
from prefork.protocols import json


class Recycled(msgspec.Struct):
    """The process ids of the workers that will go, each once its replacement has loaded."""

    replaced: list[int]


@audited("recycle")
def recycle(site: Site, request: Request) -> Response:
    """Have every worker replaced, a replacement first. Needs the operator's token; answers at once."""
    admin.check(request, site.settings)
    if site.crew.is_draining:
        raise Unavailable("the server has been told to stop")
    pids = sorted(site.crew.recycle())
    return Response(json.encode(msgspec.to_builtins(Recycled(pids))), status=202)

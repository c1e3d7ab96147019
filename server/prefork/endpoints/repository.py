"""V2's model repository: which models there are, and loading and unloading them by request.

Source: Triton's model repository extension. Loading and unloading need the operator's token; a load answers when the model
is ready, an unload when its processes are gone.
"""

from __future__ import annotations

from typing import Any

import msgspec

from prefork import admin
from prefork.audit import audited
from prefork.control import Freed, not_explicit
from prefork.endpoints.inference import served
from prefork.endpoints.site import Site
from prefork.errors import BadRequest, NotImplementedHere
from prefork.http import Request, Response
from prefork.protocols import json
from prefork.protocols.depth import check_depth
from prefork.repository.triton import as_triton


class IndexRequest(msgspec.Struct):
    """What an index may be narrowed to."""

    ready: bool = False


class ControlRequest(msgspec.Struct):
    """Parameters of a load (`config`, `file:<version>/<path>`) or an unload (`unload_dependents`)."""

    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


_index: json.Wire[IndexRequest] = json.Wire(IndexRequest)
_control: json.Wire[ControlRequest] = json.Wire(ControlRequest)


def repository_index(site: Site, request: Request) -> Response:
    """Every model of the repository, with the states of its versions."""
    wanted = _index.decode(request.body) if request.body.strip() else IndexRequest()
    found = [each for each in site.control.index() if not wanted.ready or each.state == "READY"]
    return Response(json.encode(msgspec.to_builtins(found)))


@audited("load")
def load_model(site: Site, request: Request) -> Response:
    """Load a model, or what has changed of it; what served before goes on when that fails."""
    _check_operator(site, request)
    name, parameters = request.params["model"], _parameters(request)
    config = parameters.pop("config", None)
    files = {key.removeprefix("file:"): parameters.pop(key) for key in list(parameters) if key.startswith("file:")}
    _check_rest(parameters, ())
    if not all(isinstance(text, str) for text in files.values()):
        raise BadRequest("parameters 'file:…' must be base64 text")
    site.control.load(name, None if config is None else _config(config), files)
    return Response(b"{}")


@audited("unload")
def unload_model(site: Site, request: Request) -> Response:
    """Unload a model; the answer comes when its processes are gone, and says what memory came back."""
    _check_operator(site, request)
    name, parameters = request.params["model"], _parameters(request)
    parameters.pop("unload_dependents", None)  # no model of ours depends on another
    _check_rest(parameters, ())
    freed: Freed = site.control.unload(name)
    told = {name: value for name, value in msgspec.structs.asdict(freed).items() if value is not None}
    return Response(json.encode(told))


def model_config(site: Site, request: Request) -> Response:
    """Triton's configuration of a model, as far as it has one."""
    found = served(site, request)
    return Response(json.encode(as_triton(found.config, found.described)))


def named_repository(site: Site, request: Request) -> Response:
    """One of several repositories by name, which there is not."""
    raise NotImplementedHere("'repository_name' specification is not supported")


named_load = audited("load")(named_repository)
named_unload = audited("unload")(named_repository)


def _check_operator(site: Site, request: Request) -> None:
    """Who asks where models are not loaded by request is told that, whoever it is."""
    if site.settings.control != "explicit":
        raise not_explicit()
    admin.check(request, site.settings)


def _parameters(request: Request) -> dict[str, Any]:
    return _control.decode(request.body).parameters if request.body.strip() else {}


def _check_rest(parameters: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in parameters:
        if name not in known:
            raise BadRequest(f"unexpected parameter {name[:100]!r}")


def _config(text: Any) -> dict[str, Any]:
    """Triton's clients send the JSON as text; an object is as good."""
    try:
        found = _parsed(text) if isinstance(text, str) else text
    except msgspec.MsgspecError as error:
        raise BadRequest(f"parameter 'config' is no JSON: {error}") from None
    except BadRequest as error:
        raise BadRequest(f"parameter 'config': {error.message}") from None
    if not isinstance(found, dict):
        raise BadRequest("parameter 'config' must be a JSON object")
    return found


def _parsed(text: str) -> Any:
    """JSON within JSON, which may nest as deep as any other."""
    check_depth(text.encode(), json.MAX_DEPTH)
    return msgspec.json.decode(text)

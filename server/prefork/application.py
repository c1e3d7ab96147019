"""The wiring: from settings to a loaded model behind a front. Nothing here decides anything else.

`construct` imports and builds the user's class; `serve` loads it and puts a front before it. Under `preload_app` the
first happens in the master and the second in each worker, otherwise both in the worker, always before it accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from prefork import openapi
from prefork.asgi import AsgiFront
from prefork.endpoints import Site
from prefork.errors import PreforkError
from prefork.instance import LocalInstance
from prefork.model import Model, loader
from prefork.protocols.seldon import Context
from prefork.service import Service
from prefork.settings import Settings


class Front(msgspec.Struct):
    """A front in its worker.

    app: the ASGI or WSGI callable; close: unloads the model; name: the model's; summary: a curl line to try it with;
    custom_service: the user's own blocking service, for a process of its own.
    """

    app: Callable[..., Any]
    close: Callable[[], None]
    name: str
    summary: str
    custom_service: Callable[[], None] | None


def construct(settings: Settings) -> Model:
    """Import the user's class and build it. Raises ModelLoadError, or whatever the constructor raises."""
    cls = loader.find(settings.model, settings.model_dir)
    parameters = loader.with_directory(cls, settings.parameters, settings.model_dir)
    return wrap(loader.construct(cls, parameters), settings)


def wrap(user_object: object, settings: Settings) -> Model:
    """The model of a user's object."""
    name = settings.name or type(user_object).__name__
    return Model(
        user_object,
        name,
        version=settings.version,
        metadata=settings.model_metadata,
        image=settings.unit_image,
    )


def serve(model: Model, settings: Settings) -> Front:
    """Load the model, exactly once, and put the settings' front before it. Whatever `load()` raises propagates."""
    model.load()
    instance = LocalInstance(model)
    service = Service(Site(instance, settings, _context(settings), _metadata(model), model.described))
    app, close_front = _front(service, model, settings)

    def close() -> None:
        close_front()
        instance.close()

    return Front(app, close, model.spec.name, openapi.curl(model.spec, url(settings)), model.custom_service)


def url(settings: Settings) -> str:
    """Where a client on this machine finds the server."""
    bind = settings.bind
    if bind.startswith("unix:"):
        return bind
    host, _, port = bind.rpartition(":")
    return f"http://{host if host not in ('', '0.0.0.0', '[::]') else '127.0.0.1'}:{port}"  # noqa: S104 - compared, not bound


def _context(settings: Settings) -> Context:
    return Context(settings.unit_id, settings.unit_image, settings.include_metrics, settings.nan)


def _metadata(model: Model) -> dict[str, Any] | PreforkError:
    # Seldon's clients may never ask: a bad init_metadata() is told to those who do, and does not stop the server.
    try:
        return model.metadata()
    except PreforkError as error:
        return error


def _front(service: Service, model: Model, settings: Settings) -> tuple[Callable[..., Any], Callable[[], None]]:
    if settings.worker_class == "asgi":
        service.mount = _mount(model)
        front = AsgiFront(service, settings.threads)
        return front, front.close
    from prefork.wsgi import FlaskHandlers, blueprints, wsgi_front

    own = blueprints(model.user_object)
    app = wsgi_front(service, own)
    if own:
        service.mount = FlaskHandlers(app)
    return app, lambda: None


def _mount(model: Model) -> Any:
    # Flask costs a worker 15 MB: it is imported only for a class that carries something of Flask's.
    if not any(hasattr(model.user_object, name) for name in ("model_error_handler", "blueprint")):
        return None
    from prefork.wsgi import FlaskMount, blueprints

    own = blueprints(model.user_object)
    return FlaskMount(own) if own else None

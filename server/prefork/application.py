"""The wiring: from settings to a loaded model behind a front. Nothing here decides anything else.

`construct` imports and builds the user's class; `serve` loads it and puts a front before it. Under `preload_app` the
first happens in the master and the second in each worker, otherwise both in the worker, always before it accepts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from prefork.asgi import AsgiFront
from prefork.batch.batching import BatchingInstance
from prefork.catalogue import Served, Single
from prefork.control import Fixed, Standing
from prefork.crew import Crew
from prefork.endpoints import Site
from prefork.errors import PreforkError
from prefork.instance import Instance, LocalInstance
from prefork.metrics import Account, Ledger, Meter
from prefork.model import Model, loader
from prefork.model.example import example
from prefork.payload import Payload
from prefork.protocols.examples import lines
from prefork.protocols.seldon import Context
from prefork.repository.config import Batching
from prefork.service import Service
from prefork.settings import Settings, threads_here

log = logging.getLogger("prefork")


class Front(msgspec.Struct):
    """A front in its worker.

    app: the ASGI or WSGI callable; close: unloads the model; name: the model's; summary: curl lines to try it with;
    custom_service: the user's own blocking service, for a process of its own. attach: tells it of the workers around it.
    end_streams: ends what senders have left open; whether there was anything.
    """

    app: Callable[..., Any]
    close: Callable[[], None]
    name: str
    summary: str
    custom_service: Callable[[], None] | None
    attach: Callable[[Crew], None] = lambda _crew: None
    end_streams: Callable[[], bool] = lambda: False


def construct(settings: Settings) -> Model:
    """Import the user's class and build it. Raises ModelLoadError, or whatever the constructor raises."""
    if settings.runtime:
        return wrap(_saved(settings), settings)
    cls = loader.find(settings.model, settings.model_dir)
    parameters = loader.with_directory(cls, settings.parameters, settings.model_dir)
    return wrap(loader.construct(cls, parameters), settings)


def _saved(settings: Settings) -> object:
    # The table of runtimes takes 50 ms to import: a class does without it.
    from prefork.runtimes.runtime import Options
    from prefork.runtimes.saved import Saved

    options = Options(parameters=settings.parameters, threads=threads_here(), allow_pickle=settings.allow_pickle)
    return Saved(settings.runtime, Path(settings.model), options)


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


def serve(model: Model, settings: Settings, account: Account | None = None) -> Front:
    """Load the model, exactly once, and put the settings' front before it. Whatever `load()` raises propagates.

    account: where this process counts; one of its own where there is no arbiter.
    """
    meter = Meter(account or Ledger(1).take(), settings, model.spec.name, model.spec.version)
    with meter.loading():
        model.load()
    local = LocalInstance(model)
    instance, is_batched = _batched(local, settings)
    if not is_batched:
        meter.plain = meter.models.plain(model.spec.name, model.spec.version)
    catalogue = Single(Served(instance, _metadata(model), model.described, is_counted=is_batched))
    known = Fixed([Standing(model.spec.name, model.spec.version, "READY")])
    service = Service(Site(catalogue, settings, context(settings), meter, control=known))
    if isinstance(instance, BatchingInstance):
        instance.report = lambda: service.site.crew.report_stuck()  # noqa: PLW0108 - the crew comes later
    app, close_front = front_of(service, model.user_object, settings)

    def close() -> None:
        close_front()
        instance.close()
        meter.close()

    def attach(crew: Crew) -> None:
        service.site.crew = crew

    summary = lines(model.described, url(settings))
    return Front(app, close, model.spec.name, summary, model.custom_service, attach, local.end_streams)


def batching(settings: Settings) -> Batching | None:
    """How requests are put together; None where they are not."""
    if not settings.max_batch_size:
        return None
    return Batching(
        max_batch_size=settings.max_batch_size,
        max_batch_delay=settings.max_batch_delay,
        preferred_batch_sizes=settings.preferred_batch_sizes,
        retry_alone=settings.retry_alone,
        max_queue=settings.max_queue,
    )


def _batched(local: LocalInstance, settings: Settings) -> tuple[Instance, bool]:
    policy = batching(settings)
    if policy is None or local.spec.streams or not local.spec.is_batched:
        if policy is not None and not local.spec.is_batched:
            log.warning("%s is made for a fixed number of rows: its requests are not put together", local.spec.name)
        return local, False
    return BatchingInstance(local, policy, max(1, settings.threads), stuck_after=settings.timeout), True


def try_out(
    model: Model, settings: Settings, begin: Callable[[str], None], settled: Callable[[], None] = lambda: None
) -> str:
    """Load the model, predict on its example as a worker would, and unload it; what was done, in words.

    begin: told `load()` and `predict`, in the thread that does it; settled: called before the model is closed.
    """
    begin("load()")
    model.load()
    asked = example(model)
    if asked is not None:
        _as_served(lambda: _predict(model, asked[0], begin), settings)
    settled()
    model.close()
    return f"predict with {asked[1]}" if asked else "load() only: the class has no `example`"


def url(settings: Settings) -> str:
    """Where a client on this machine finds the server."""
    bind = settings.bind
    if bind.startswith("unix:"):
        return bind
    host, _, port = bind.rpartition(":")
    return f"http://{host if host not in ('', '0.0.0.0', '[::]') else '127.0.0.1'}:{port}"  # noqa: S104 - compared, not bound


def _predict(model: Model, request: Payload, begin: Callable[[str], None]) -> None:
    begin("predict")
    for _ in LocalInstance(model).infer(request) if model.sends else model.stream(request):
        pass


def _as_served(call: Callable[[], None], settings: Settings) -> None:
    """Call it in a thread where a worker would: what hangs may depend on it."""
    if settings.threads and settings.worker_class in {"asgi", "gthread"}:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(call).result()
    else:
        call()


def context(settings: Settings) -> Context:
    """How Seldon's answers are written."""
    return Context(settings.unit_id, settings.unit_image, settings.include_metrics, settings.nan)


def _metadata(model: Model) -> dict[str, Any] | PreforkError:
    # Seldon's clients may never ask: a bad init_metadata() is told to those who do, and does not stop the server.
    try:
        return model.metadata()
    except PreforkError as error:
        return error


def front_of(
    service: Service, user_object: object, settings: Settings
) -> tuple[Callable[..., Any], Callable[[], None]]:
    """The callable of the settings' front over a service, and what ends it. user_object: may carry Flask's things; None has none."""
    if settings.worker_class == "asgi":
        service.mount = _mount(user_object)
        front = AsgiFront(service, settings.threads)
        return front, front.close
    from prefork.wsgi import FlaskHandlers, blueprints, wsgi_front

    own = blueprints(user_object)
    app = wsgi_front(service, own)
    if own:
        service.mount = FlaskHandlers(app)
    return app, lambda: None


def _mount(user_object: object) -> Any:
    # Flask costs a worker 15 MB: it is imported only for a class that carries something of Flask's.
    if not any(hasattr(user_object, name) for name in ("model_error_handler", "blueprint")):
        return None
    from prefork.wsgi import FlaskMount, blueprints

    own = blueprints(user_object)
    return FlaskMount(own) if own else None

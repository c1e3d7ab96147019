"""The wiring of models in processes of their own: from settings to the supervisor's orders, and to a front over its models."""

from __future__ import annotations

from pathlib import Path

from prefork.application import Front, batching, context, front_of, url
from prefork.catalogue import Served
from prefork.control import Control
from prefork.crew import Crew
from prefork.endpoints import Site
from prefork.errors import ModelLoadError, PreforkError, SettingError
from prefork.hosted import Hosted
from prefork.metrics import Account, Meter
from prefork.protocols.examples import lines
from prefork.repository.config import ModelConfig
from prefork.repository.reading import Wrong, check_json
from prefork.service import Service
from prefork.settings import Settings
from prefork.supervisor.client import SupervisorControl
from prefork.supervisor.orders import Orders, Single

_PATIENCE = 30.0
"""Seconds that the supervisor has to be there, on a busy machine."""


def is_hosted(settings: Settings) -> bool:
    """Whether the models run in processes of their own."""
    return settings.host == "process" or bool(settings.repository)


def check(settings: Settings) -> None:
    """Raise SettingError for what cannot be meant together, before anything is started."""
    if settings.model and settings.repository:
        raise SettingError(f"--repository: it is served instead of a class; leave {settings.model!r} out")
    for folder in settings.repository:
        if not Path(folder).is_dir():
            raise SettingError(f"--repository {folder}: there is no such folder")
    if settings.control != "none" and not settings.repository:
        raise SettingError(f"--control {settings.control}: there is no repository to load models from")
    if is_hosted(settings):
        try:
            check_json(settings.parameters, "parameters")
        except Wrong as error:
            raise SettingError(f"{error}; under --host process it goes to the model as JSON") from None
    if any(size > settings.max_batch_size for size in settings.preferred_batch_sizes):
        raise SettingError(
            f"--preferred-batch-sizes: sizes from 1 to max_batch_size, which is {settings.max_batch_size}, are needed"
        )
    if settings.model_config_name and not settings.repository:
        raise SettingError(f"--model-config-name {settings.model_config_name}: there is no repository with models")
    if settings.load_model and settings.control != "explicit":
        raise SettingError("--load-model: only --control explicit takes it; otherwise all models are loaded")


def orders(settings: Settings, run_dir: str, parent: int, lock: int = -1) -> Orders:
    """What the supervisor is to do. parent: the arbiter's process id. lock: see `Orders`."""
    return Orders(
        run_dir=run_dir,
        is_temporary=not settings.run_dir,
        lock=lock,
        parent=parent,
        repositories=tuple(str(Path(each).resolve()) for each in settings.repository),
        config_name=settings.model_config_name,
        control=settings.control,
        load_model=settings.load_model,
        poll_seconds=settings.poll_seconds,
        load_threads=settings.load_threads,
        singles=() if settings.repository else (_single(settings),),
        graceful_timeout=settings.graceful_timeout,
        timeout=settings.timeout,
        metadata=settings.model_metadata,
        image=settings.unit_image,
        said=settings.thread_variables,
        log_level=settings.log_level,
    )


def serve(settings: Settings, account: Account, run_dir: str) -> Front:
    """A front over the supervisor's models, once those of the start are loaded. Raises ModelLoadError when the only one is not."""
    name = name_of(settings)
    control = SupervisorControl(run_dir)
    try:
        failures = control.wait_settled(_PATIENCE)
    except PreforkError as error:
        raise ModelLoadError(error.message) from None
    if name and name in failures:
        raise ModelLoadError(failures[name])
    meter = Meter(account, settings, name or "*", settings.version if name else "*")
    with meter.loading():
        pass
    catalogue = Hosted(run_dir, name)
    return _front(Service(Site(catalogue, settings, context(settings), meter, control=control)), catalogue, settings)


def name_of(settings: Settings) -> str:
    """The name of the only model; empty for a repository."""
    if settings.repository:
        return ""
    return settings.name or settings.model.replace(":", ".").rpartition(".")[2]


def summary(catalogue: Hosted, control: Control, settings: Settings) -> str:
    """What to try first: a model where there is one, else what there is."""
    found = _first(catalogue)
    if found is not None:
        return lines(found.described, url(settings), seldon=len(catalogue.names()) == 1)
    known = [each.name for each in control.index()]
    names = f"it has {', '.join(known[:20])}" if known else "it is empty"
    return f"no model is loaded from the repository; {names}"


def _first(catalogue: Hosted) -> Served | None:
    for name in catalogue.names():
        return catalogue.find(name)
    return None


def _front(service: Service, catalogue: Hosted, settings: Settings) -> Front:
    app, close_front = front_of(service, None, settings)

    def close() -> None:
        close_front()
        service.site.meter.close()

    def attach(crew: Crew) -> None:
        service.site.crew = crew

    name = name_of(settings) or "the repository"
    return Front(app, close, name, summary(catalogue, service.site.control, settings), None, attach)


def _single(settings: Settings) -> Single:
    saved = Path(settings.model) if settings.runtime else None
    config = ModelConfig(
        name=name_of(settings),
        class_="" if saved else settings.model,
        runtime=settings.runtime,
        file=saved.name if saved else "",
        allow_pickle=settings.allow_pickle,
        instances=settings.instances,
        devices=settings.devices,
        threads=max(1, settings.threads),
        environment=settings.environment,
        python=settings.python,
        allocator=settings.allocator,
        memory_limit=settings.memory_limit,
        parameters=settings.parameters,
        batching=batching(settings),
        max_queue=settings.max_queue,
        load_timeout=settings.load_timeout,
        unload_timeout=settings.unload_timeout,
    )
    folder = str(Path(settings.model_dir).resolve()) if settings.model_dir else ""
    if saved is not None:
        folder = str(saved.parent)
    return Single(config=config, version=settings.version, folder=folder, directory=str(Path.cwd()))

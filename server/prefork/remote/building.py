"""Makes the model that an instance process is charged with, and tries it before anybody else may ask it."""

from __future__ import annotations

import collections
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from prefork import standard
from prefork.errors import BadMetadata
from prefork.instance import LocalInstance
from prefork.model import Model, loader
from prefork.payload import ModelSpec, Payload
from prefork.remote import loops
from prefork.remote.charge import Card, Charge
from prefork.remote.warming import warmups
from prefork.repository.config import ModelConfig
from prefork.settings import threads_here

log = logging.getLogger("prefork")

_FLASK = ("blueprint", "model_error_handler")


def build(charge: Charge) -> tuple[LocalInstance, Card]:
    """Import, construct, load and warm the model. Raises ModelLoadError, or whatever the user's code raises."""
    begun = time.monotonic()
    model = _construct(charge)
    if charge.place == 0:
        _tell_unserved(model)
    standard.mend()
    model.load()
    standard.mend()
    charge = msgspec.structs.replace(charge, config=_completed(model, charge.config))
    instance = LocalInstance(model)
    spec = _declared(model.spec, charge)
    for request in warmups(charge, model, spec):
        _try(instance, request)
    return instance, _card(model, spec, charge, time.monotonic() - begun)


def _try(instance: LocalInstance, request: Payload) -> None:
    """Ask once; an asynchronous model on the loop that it will be asked on: what it opens there belongs to that."""
    if not instance.is_async:
        collections.deque(instance.infer(request), maxlen=0)
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(loops.of_model().run_until_complete, _try_async(instance, request)).result()


async def _try_async(instance: LocalInstance, request: Payload) -> None:
    async for _ in instance.infer_async(request):
        pass


def _construct(charge: Charge) -> Model:
    config = charge.config
    if config.runtime:
        return _saved(charge)
    if _is_tritons(config):
        return _for_triton(charge)
    cls = _find(charge)
    given = loader.with_device(cls, loader.with_directory(cls, config.parameters, charge.folder), charge.device)
    user_object = loader.construct(cls, given)
    name = config.name or type(user_object).__name__
    return Model(user_object, name, version=charge.version, metadata=charge.metadata, image=charge.image)


def _for_triton(charge: Charge) -> Model:
    # As with the runtimes: 7 ms that no other model has to wait for.
    from prefork import triton
    from prefork.repository.triton import as_triton

    config = charge.config
    triton.stand_in()
    place = triton.Place(
        config.name, charge.version, charge.directory or charge.folder, charge.place, charge.device not in (None, "cpu")
    )
    said = as_triton(config, ModelSpec(config.name, charge.version))
    adapter = triton.Adapter(_find(charge), said, place)
    return Model(adapter, config.name, version=charge.version, metadata=charge.metadata, image=charge.image)


def _completed(model: Model, config: ModelConfig) -> ModelConfig:
    """The configuration with what a model of Triton's has added to it while it was loaded."""
    complete = getattr(model.user_object, "complete", None) if _is_tritons(config) else None
    return config if complete is None else complete(config)


def _is_tritons(config: ModelConfig) -> bool:
    return not config.runtime and config.class_.endswith((":TritonPythonModel", ".TritonPythonModel"))


def _saved(charge: Charge) -> Model:
    # The table of runtimes takes 50 ms to import: a class does without it.
    from prefork.runtimes.runtime import Options
    from prefork.runtimes.saved import Saved

    config = charge.config
    folders = [Path(each) for each in (charge.folder, charge.directory) if each]
    path = next((each / config.file for each in folders if (each / config.file).exists()), folders[0] / config.file)
    options = Options(
        parameters=config.parameters,
        threads=threads_here(),
        device=charge.device,
        allow_pickle=config.allow_pickle,
    )
    saved = Saved(config.runtime, path, options)
    name = config.name or path.stem
    return Model(saved, name, version=charge.version, metadata=charge.metadata, image=charge.image)


def _find(charge: Charge) -> type[Any]:
    """The class. The version's folder comes first on the path, and the model's second."""
    if charge.folder:
        folders = dict.fromkeys(str(Path(each).resolve()) for each in (charge.folder, charge.directory) if each)
        sys.path[:0] = folders
    return loader.find(charge.config.class_)


def _declared(spec: ModelSpec, charge: Charge) -> ModelSpec:
    """The spec with what the model's own file declares."""
    config = charge.config
    return msgspec.structs.replace(
        spec,
        inputs=config.inputs or spec.inputs,
        outputs=config.outputs or spec.outputs,
        platform=spec.platform if config.platform == "python" else config.platform,
        streams=spec.streams or config.decoupled,
        labels=config.labels or spec.labels,
        max_rows=config.max_rows,
    )


def _tell_unserved(model: Model) -> None:
    """Warn of Flask blueprints, which only an HTTP worker with the object in it can serve."""
    found = [name for name in _FLASK if _is_blueprint(getattr(model.user_object, name, None))]
    if found:
        log.warning(
            "the class's %s %s no effect here: under host: process its paths and error handlers are not served; "
            "serve the class by itself with --host worker to have them",
            " and ".join(found),
            "has" if len(found) == 1 else "have",
        )


def _is_blueprint(value: object) -> bool:
    # Flask itself is not imported for this: who made a blueprint has done that.
    return any(each.__module__ == "flask.blueprints" for each in type(value).__mro__)


def _card(model: Model, spec: ModelSpec, charge: Charge, seconds: float) -> Card:
    metadata, trouble = {}, ""
    try:
        metadata = model.metadata()
    except BadMetadata as error:
        trouble = error.message
        log.error("%s", trouble, exc_info=error.__cause__)
    described = _declared(model.described, charge)
    return Card(
        spec=spec,
        described=described,
        metadata=metadata,
        trouble=trouble,
        is_async=model.is_async,
        loaded=seconds,
        config=charge.config,
    )

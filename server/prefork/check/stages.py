"""The examination itself: in a child the model's life as in a worker, in another as under `preload_app`."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from prefork import application
from prefork.check.findings import Found, Preload, Stage
from prefork.check.memory import measured
from prefork.check.pickles import pickled, version
from prefork.errors import PreloadRefused
from prefork.guard import Guard
from prefork.guard.offspring import Offspring, Say
from prefork.model import Model, loader
from prefork.model.hooks import found as hook_of
from prefork.model.ownership import Ownership
from prefork.payload import TensorSpec
from prefork.runtimes.saved import Saved
from prefork.settings import Settings

_HOOKS = (
    "load", "predict", "predict_raw", "predict_rest", "transform_input", "transform_output", "route", "aggregate",
    "send_feedback", "class_names", "tags", "metrics", "init_metadata", "health_status", "custom_service", "close",
)  # fmt: skip


def examine(settings: Settings) -> Found:
    """Everything that there is to find. Nothing of the user's code stays in this process."""
    found = Found(model=settings.model, workers=settings.workers)
    found.pickles = pickled(_folders(settings))
    _collect(found, lambda say: _as_in_a_worker(settings, say))
    if not found.failed:
        found.preload = _preloaded(settings)
    return found


def _folders(settings: Settings) -> list[Path]:
    """Where pickled files of the model's may lie."""
    if settings.runtime:
        path = Path(settings.model)
        return [path if path.is_dir() else path.parent]
    return [Path.cwd(), *([Path(settings.model_dir)] if settings.model_dir else [])]


def _collect(found: Found, run: Callable[[Say], None]) -> None:
    child = Offspring(run)
    for line in child.lines():
        for name, value in line.items():
            if name == "stage":
                found.stages.append(msgspec.convert(value, Stage))
            else:
                setattr(found, name, value)
    code = child.end()
    if not found.failed and (code > 0 or not found.each_without):
        last = found.stages[-1].name if found.stages else "the start"
        found.failed = f"the process ended behind {last}{f' with status {code}' if code > 0 else ''}"


def _as_in_a_worker(settings: Settings, say: Say) -> None:
    os.dup2(2, 1)  # what the user's code prints is not part of the page
    stage = "import"
    before = set(sys.modules)
    say({"base": measured().resident, "stage": _stage("start", 0.0)})
    try:
        begun = time.monotonic()
        _find(settings)
        say({"stage": _stage("import", begun)})
        stage, begun = "constructor", time.monotonic()
        model = application.construct(settings)
        say({"stage": _stage(stage, begun), **_described(model, settings)})

        def begin(step: str) -> None:
            nonlocal stage, begun
            if step == "predict":
                say({"stage": _stage("load()", begun), "inputs": _inputs(model)})
            stage, begun = step, time.monotonic()

        told = application.try_out(model, settings, begin, lambda: say(_end(stage, begun)))
        say({"tried": told})
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's
        say({"failed": f"{stage}: {type(error).__name__}: {error}"})
    say({"imports": _imports(set(sys.modules) - before, settings)})


def _find(settings: Settings) -> None:
    """Import the class; a saved model has none."""
    if not settings.runtime:
        loader.find(settings.model, settings.model_dir)


def _end(stage: str, begun: float) -> dict[str, Any]:
    return {"stage": _stage(stage, begun), "each_without": measured().private}


def _stage(name: str, begun: float) -> dict[str, Any]:
    seconds = time.monotonic() - begun if begun else 0.0
    return {"name": name, "resident": measured().resident, "seconds": seconds}


def _described(model: Model, settings: Settings) -> dict[str, Any]:
    if settings.runtime:
        return {"file": settings.model, "style": f"a saved model, served by {settings.runtime}"}
    user = model.user_object
    predict = hook_of(user, "predict")
    named = model.spec.inputs is not None
    style = "the named style" if named else "Seldon's style"
    return {
        "file": _file(type(user)),
        "signature": f"predict{inspect.signature(predict)}" if predict is not None else "",
        "style": f"{style}{', asynchronous' if model.is_async else ''}{', streams' if model.spec.streams else ''}",
        "inputs": [_input(spec) for spec in model.spec.inputs or ()],
        "hooks": [
            name
            for name in _HOOKS
            if hook_of(user, name) is not None or (name == "class_names" and hasattr(user, name))
        ],
    }


def _inputs(model: Model) -> list[str]:
    """Those of the signature; a saved model's are known once it is loaded."""
    return [
        _input(spec) for spec in (model.described if isinstance(model.user_object, Saved) else model.spec).inputs or ()
    ]


def _input(spec: TensorSpec) -> str:
    shape = "" if spec.shape is None else str(list(spec.shape))
    return f"{spec.name} {spec.datatype or 'any'}{shape}{' (optional)' if spec.optional else ''}"


def _file(cls: type[Any]) -> str:
    try:
        return inspect.getfile(cls)
    except (OSError, TypeError):
        return ""


def _imports(new: set[str], settings: Settings) -> dict[str, str]:
    """The installed packages among new modules and among those that the user's modules hold, by their installed names."""
    owned = [] if settings.runtime else [each for _, each in Ownership.of(settings.model, settings.model_dir).modules()]
    held = {value.__name__ for module in owned for value in vars(module).values() if inspect.ismodule(value)}
    tops = {name.partition(".")[0] for name in new | held} - sys.stdlib_module_names
    by_module = metadata.packages_distributions()
    distributions = sorted({each for top in tops for each in by_module.get(top, ())}, key=str.lower)
    return {name: version(name) for name in distributions}


def _preloaded(settings: Settings) -> Preload:
    found = Preload()
    child = Offspring(lambda say: _as_in_the_master(settings, say))
    for line in child.lines():
        for name, value in line.items():
            setattr(found, name, value)
    child.end()
    if not found.shared and not found.refused:
        found.refused = "The process that tried it has ended without a word."
    return found


def _as_in_the_master(settings: Settings, say: Say) -> None:
    os.dup2(2, 1)
    settings = msgspec.structs.replace(settings, preload_app=True)
    objects = 0

    def construct() -> Model:
        nonlocal objects
        _find(settings)
        before = measured().objects
        model = application.construct(settings)
        objects = measured().objects - before
        return model

    def try_out(model: Model, begin: Callable[[str], None]) -> str:
        return application.try_out(model, settings, begin, lambda: say({"private": measured().private}))

    try:
        _built = Guard(settings).build(construct, try_out)  # kept while it is measured
        say({"shared": measured().resident, "objects": objects})
    except PreloadRefused as refused:
        say({"refused": str(refused)})
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's
        say({"refused": f"{type(error).__name__}: {error}"})

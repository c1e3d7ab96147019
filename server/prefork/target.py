"""What MODEL means: a class's import path, or the path or address of a saved model, whose runtime and host follow from what it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from prefork.fetching import local
from prefork.settings import Settings

if TYPE_CHECKING:  # the table of runtimes takes 50 ms to import: a class does without it
    from prefork.runtimes.recognition import Recognition
    from prefork.runtimes.runtime import Runtime


def settled(settings: Settings) -> Settings:
    """The settings with what is to be served found out. Raises ModelLoadError for a path with no model that can be served."""
    if settings.repository:
        folders = tuple(str(_here(each, settings)) if "://" in each else each for each in settings.repository)
        return msgspec.structs.replace(settings, repository=folders)
    path = _path(settings)
    if path is None:
        return settings
    from prefork.runtimes.layouts import LAYOUTS
    from prefork.runtimes.recognition import recognise

    found = recognise(path, settings.runtime, LAYOUTS)
    if found.class_:
        return msgspec.structs.replace(settings, model=found.class_, model_dir=str(found.path))
    return _saved(settings, path, found)


def _saved(settings: Settings, path: Path, found: Recognition) -> Settings:
    from prefork.runtimes import prepackaged, table

    runtime = table.find(found.runtime)
    host, why = _host(settings, runtime)
    note = f"{found.path} is a model of the kind {runtime.name}; host: {host}, as {why}"
    return msgspec.structs.replace(
        settings,
        model=str(found.path.resolve()),
        model_dir="",
        runtime=runtime.name,
        host=host,
        name=settings.name or found.name or _name(path),
        version=found.version if found.version and settings.version == "1" else settings.version,
        parameters=prepackaged.translated(runtime.name, {**found.parameters, **settings.parameters}),
        notes=(*settings.notes, note),
    )


def _host(settings: Settings, runtime: Runtime) -> tuple[str, str]:
    """Where the model is to live, and why there."""
    if settings.host != "auto":
        return settings.host, "that was asked for"
    if settings.devices:
        return "process", "each of its devices is a process's own"
    return runtime.host, runtime.why


def _path(settings: Settings) -> Path | None:
    """The path that is meant; None for a class. What is there as Python code is a class, however its folder is called."""
    said = settings.model
    if not said:
        return Path(settings.model_dir) if settings.model_dir else None
    if "://" in said:
        return _here(said, settings)
    path = Path(said)
    if "/" in said or settings.runtime:
        return path
    is_code = Path(f"{said}.py").exists() or (path / "__init__.py").exists()
    return path if path.exists() and not is_code else None


def _here(address: str, settings: Settings) -> Path:
    """The path of what an address means, downloaded if need be."""
    return local(address, cache=settings.model_cache)


def _name(path: Path) -> str:
    """The model's: the file's without its suffix, or the folder's."""
    path = path.resolve()
    return path.name if path.is_dir() else path.name.removesuffix(path.suffix)

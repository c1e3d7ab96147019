"""Saved models in a repository: what `prefork.repository` asks of whoever knows them."""

from __future__ import annotations

from pathlib import Path

from prefork.errors import ModelLoadError, RepositoryError
from prefork.repository.config import ModelConfig
from prefork.repository.folder import Known, Place, Recognised
from prefork.runtimes import mlmodel, table
from prefork.runtimes.layouts import LAYOUTS
from prefork.runtimes.recognition import Recognition, look


def known() -> Known:
    """The runtimes, for a repository."""
    return Known((_recognised,), frozenset(table.runtimes()), (_described,))


def _described(place: Place, config: ModelConfig) -> Recognised | None:
    """The saved model of a version whose folder says itself what it holds, whatever code lies beside it."""
    folder = place.folder
    if config.file:
        return None
    try:
        found = next(filter(None, (layout(folder) for layout in (*LAYOUTS, _mlflow))), None)
    except ModelLoadError as error:
        raise RepositoryError(str(error)) from None
    return None if found is None else _as_said(found, place)


def _mlflow(folder: Path) -> Recognition | None:
    return Recognition("mlflow", folder) if mlmodel.is_model(folder) else None


def _recognised(place: Place, config: ModelConfig) -> Recognised | None:
    """The saved model of a version: the file that its config names, else the one in its folder."""
    path = place.find(config.file) if config.file else place.folder
    if path is None:
        return None
    try:
        found = look(path, config.runtime, LAYOUTS)
    except ModelLoadError as error:
        raise RepositoryError(str(error)) from None
    return None if found is None else _as_said(found, place)


def _as_said(found: Recognition, place: Place) -> Recognised:
    if found.class_:
        return Recognised(class_=_import_path(found.class_, place), parameters=found.parameters)
    base = next((each for each in place.folders() if found.path.is_relative_to(each)), None)
    file = str(found.path.resolve() if base is None else found.path.relative_to(base))
    return Recognised(runtime=found.runtime, file="" if file == "." else file, parameters=found.parameters)


def _import_path(said: str, place: Place) -> str:
    """`module:Class`, of a module that is there. Raises RepositoryError."""
    module, _, name = said.rpartition(":" if ":" in said else ".")
    module = module or name
    if not any(place.find(f"{module.replace('.', '/')}{end}") for end in (".py", "/__init__.py")):
        raise RepositoryError(f"{place.folder}: there is no module {module!r} with the class {said!r}")
    return f"{module}:{name}"

"""Saved models in a repository: what `prefork.repository` asks of whoever knows them."""

from __future__ import annotations

from prefork.errors import ModelLoadError, RepositoryError
from prefork.repository.config import ModelConfig
from prefork.repository.folder import Known, Place, Recognised
from prefork.runtimes import table
from prefork.runtimes.layouts import LAYOUTS
from prefork.runtimes.recognition import Recognition, recognise


def known() -> Known:
    """The runtimes, for a repository."""
    return Known((_recognised,), frozenset(table.runtimes()))


def _recognised(place: Place, config: ModelConfig) -> Recognised | None:
    """The saved model of a version: the file that its config names, else the one in its folder."""
    path = place.find(config.file) if config.file else place.folder
    if path is None:
        return None
    try:
        found = recognise(path, config.runtime, LAYOUTS)
    except ModelLoadError as error:
        if config.runtime:
            raise RepositoryError(str(error)) from None
        return None
    return _as_said(found, place)


def _as_said(found: Recognition, place: Place) -> Recognised:
    base = next((each for each in place.folders() if found.path.is_relative_to(each)), place.folder)
    file = str(found.path.relative_to(base))
    return Recognised(
        class_=found.class_, runtime=found.runtime, file="" if file == "." else file, parameters=found.parameters
    )

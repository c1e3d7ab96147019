"""One model's folder: its config, its versions, and what each of them serves.

    <name>/  [model.yaml] [config.pbtxt] [configs/*.pbtxt] [files that all versions share]
    <name>/<version>/...            a version is a whole number of at least 1, without leading zeros
    <name>/...                      without version folders the folder itself is version 1

Everything that can be told without running the model's code is told here, before a process is started: a missing
module, a class that is not there, a config that cannot be meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from prefork.errors import RepositoryError
from prefork.repository import files, fingerprint, model_yaml, policy, triton
from prefork.repository.config import ModelConfig
from prefork.repository.overrides import Override
from prefork.repository.source import Source

MODULE = "model.py"
_CONFIGS = (model_yaml.FILE, triton.FILE)
_NO_MODELS = ("setup.py", "conftest.py")


class Place(msgspec.Struct, frozen=True):
    """Where one version's files are: its own folder first, then the model's, which all of its versions share."""

    name: str
    folder: Path
    model_folder: Path

    def find(self, file: str) -> Path | None:
        """The file, or folder, of that name in either."""
        return next((each / file for each in self.folders() if (each / file).exists()), None)

    def folders(self) -> tuple[Path, ...]:
        """Both folders; for a single version they are one."""
        return (self.folder,) if self.folder == self.model_folder else (self.folder, self.model_folder)


class Recognised(msgspec.Struct, frozen=True):
    """What a version serves: a class, as `module:Class`, or a runtime and its file.

    file: in the version's folder or the model's; empty for the folder itself. parameters: what the model's folder says to the runtime.
    """

    class_: str = ""
    runtime: str = ""
    file: str = ""
    parameters: Mapping[str, Any] = {}


Recogniser = Callable[[Place, ModelConfig], Recognised | None]
"""Looks at a version's files and says what they are, or None where it does not know them."""


class Known(msgspec.Struct, frozen=True):
    """Who else knows what a version may be.

    recognisers: asked in turn where the config says nothing and the version is no Python class. runtimes: the names that
    `runtime` may have. describers: asked before Python classes are looked for, as they go by files that say what the folder is.
    """

    recognisers: tuple[Recogniser, ...] = ()
    runtimes: frozenset[str] = frozenset()
    describers: tuple[Recogniser, ...] = ()


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version that is to be served. config: the model's, with what was recognised in this version filled in.

    fingerprint: equal as long as the version need not be loaded again.
    """

    name: str
    number: int
    folder: Path
    model_folder: Path
    config: ModelConfig
    fingerprint: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a repository has under a name, ready to be loaded.

    config_stamp: equal as long as the config's files are. override: what was said instead of the folder's own files.
    """

    name: str
    folder: Path
    config: ModelConfig
    versions: dict[int, Version]
    notes: tuple[str, ...] = ()
    config_stamp: str = ""
    override: Override | None = None


def read(
    folder: Path, name: str, config: ModelConfig | None = None, known: Known | None = None, config_name: str = ""
) -> Found:
    """The model in that folder. config: instead of what the folder's own files say. config_name: see `read_config`.

    Raises RepositoryError with the file and what is wrong.
    """
    try:
        return _read(folder, name, config, known or Known(), config_name)
    except OSError as error:  # a name too long, a folder that may not be entered
        raise RepositoryError(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise RepositoryError(f"{folder}: something in its files nests too deep to be read") from None
    except RepositoryError as error:
        error.versions = error.versions or _latest(folder)
        raise


def _read(folder: Path, name: str, config: ModelConfig | None, known: Known, config_name: str) -> Found:
    said, notes = (config, ()) if config is not None else read_config(folder, config_name)
    if said.name and said.name != name:
        raise RepositoryError(f"{folder}: the config calls the model {said.name!r}, its folder {name!r}")
    said = msgspec.structs.replace(said, name=name, python=_python(said.python, folder))
    places, ignored = _places(folder, name)
    chosen = policy.served(said.versions, places)
    missing = [f"version {number} is not there" for number in policy.missing(said.versions, places)]
    if not chosen:
        found = f"there are {', '.join(map(str, sorted(places)))}" if places else "there is none"
        raise RepositoryError(
            f"{folder}: at least one version must be available under the version policy of model {name!r}; {found}"
        )
    shared = fingerprint.folder(folder, [*_CONFIGS, *_number_folders(folder)])
    try:
        versions = {number: _version(places[number], number, said, shared, known) for number in chosen}
    except RepositoryError as error:
        error.versions = tuple(chosen)
        raise
    return Found(
        name=name,
        folder=folder,
        config=said,
        versions=versions,
        notes=(*notes, *ignored, *missing),
        config_stamp=config_stamp(folder, config_name),
    )


def read_config(folder: Path, config_name: str = "") -> tuple[ModelConfig, tuple[str, ...]]:
    """What the folder's files say, and notes on what has no effect. model.yaml goes over Triton's file.

    config_name: of the file in `configs` that is Triton's, where the model has one of that name.
    """
    file = triton.file_in(folder, config_name)
    base = triton.Read(ModelConfig()) if file is None else triton.read_file(file, folder)
    if (folder / model_yaml.FILE).exists() or (folder / model_yaml.FILE).is_symlink():
        return model_yaml.read(folder / model_yaml.FILE, base.config), base.notes
    return base


def config_stamp(folder: Path, config_name: str = "") -> str:
    """Equal as long as nobody has touched the folder's config."""
    configs = (*_CONFIGS, triton.CONFIGS) if config_name else _CONFIGS
    others = [name for name in _names(folder) if name not in configs]
    return fingerprint.folder(folder, others)


def recognise(place: Place, config: ModelConfig, known: Known) -> Recognised:
    """What the version serves: what the config says, checked, else what the first recogniser knows."""
    if config.class_:
        return Recognised(class_=_checked(place, config))
    if config.runtime:
        if config.runtime not in known.runtimes:
            others = f"there are {', '.join(sorted(known.runtimes))}" if known.runtimes else "there is none"
            raise RepositoryError(f"{place.model_folder}: there is no runtime {config.runtime!r}; {others}")
        if config.file and place.find(config.file) is None:
            raise RepositoryError(f"{place.folder}: there is no {config.file}")
        for each in known.recognisers:
            found = each(place, config)
            if found is not None:
                return msgspec.structs.replace(found, class_="", runtime=config.runtime)
        return Recognised(runtime=config.runtime, file=config.file)
    for each in (*known.describers, class_of, *known.recognisers):
        found = each(place, config)
        if found is not None:
            return found
    if config.file and place.find(config.file) is None:
        raise RepositoryError(f"{place.folder}: there is no {config.file}")
    raise RepositoryError(
        f"{place.folder}: there is nothing to serve; {_oddity(place.folder) or f'{MODULE} with a class is needed'}"
    )


def class_of(place: Place, config: ModelConfig) -> Recognised | None:
    """A recogniser of Python classes: that of `model.py`, or of the file that `file` says, or of the one file `Iris.py` that has `class Iris`."""
    path = place.find(config.file or MODULE)
    if path is None and not config.file:
        path = _eponymous(place)
    if path is None or path.suffix != ".py":
        return None
    return Recognised(class_=f"{path.stem}:{Source(path).find([place.name, path.stem])}")


# --- versions -----------------------------------------------------------------------------------------------------


def _places(folder: Path, name: str) -> tuple[dict[int, Place], list[str]]:
    """The versions that are there, and notes on folders that look like versions and are none."""
    numbers = _number_folders(folder)
    ignored = [f"{odd} is no version and is ignored" for odd in policy.numberlike(_folders(folder))]
    if numbers:
        return {int(each): Place(name, folder / each, folder) for each in numbers}, ignored
    if any(not fingerprint.is_ignored(each) and each not in _CONFIGS for each in _names(folder)) and not ignored:
        return {1: Place(name, folder, folder)}, ignored
    return {}, ignored


def _latest(folder: Path) -> tuple[int, ...]:
    """The version that is meant where nobody can say which ones are."""
    try:
        return tuple(sorted(_places(folder, folder.name)[0])[-1:])
    except (RepositoryError, OSError):
        return ()


def _number_folders(folder: Path) -> list[str]:
    return [name for name in _folders(folder) if policy.number(name) is not None]


def _folders(folder: Path) -> list[str]:
    return [name for name in _names(folder) if (folder / name).is_dir()]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(each.name for each in folder.iterdir())
    except OSError as error:
        raise RepositoryError(f"{folder}: cannot be read: {error.strerror}") from None


def _version(place: Place, number: int, config: ModelConfig, shared: str, known: Known) -> Version:
    found = recognise(place, config, known)
    whole = msgspec.structs.replace(
        config,
        class_=found.class_,
        runtime=found.runtime,
        file=found.file or config.file,
        parameters={**found.parameters, **config.parameters},
    )
    _check_file(place, whole.file)
    _check_warmup(place, whole)
    _check_text(place, whole)
    own = fingerprint.folder(place.folder) if place.folder != place.model_folder else ""
    return Version(
        name=place.name,
        number=number,
        folder=place.folder,
        model_folder=place.model_folder,
        config=whole,
        fingerprint=fingerprint.version(whole, str(place.folder), own, shared),
    )


def _check_warmup(place: Place, config: ModelConfig) -> None:
    for each in config.warmup:
        if each.file and place.find(each.file) is None:
            raise RepositoryError(f"{place.folder}: there is no {each.file}, which the warm-up names")
        _check_file(place, each.file)


def _check_file(place: Place, file: str) -> None:
    """Raises OSError for a pipe or a device, at which the model's process would wait until its time to load is up."""
    path = place.find(file) if file else None
    if path is not None:
        files.check(path)


def _oddity(folder: Path) -> str:
    """The first entry that is neither a file nor a folder, in words."""
    found = ((name, files.odd(folder / name)) for name in _names(folder) if (folder / name).exists())
    return next((f"{name} is {words}, and a file is needed" for name, words in found if words), "")


def _check_text(place: Place, config: ModelConfig) -> None:
    """Names of files that were found, as the config goes to other processes as JSON."""
    for each in (config.class_, config.file, str(place.folder)):
        try:
            each.encode()
        except UnicodeEncodeError:
            raise RepositoryError(f"{place.folder}: the name {each!r} is no UTF-8; rename it") from None


def _python(said: str, folder: Path) -> str:
    return str(folder / said) if "/" in said else said


# --- classes ------------------------------------------------------------------------------------------------------


def _checked(place: Place, config: ModelConfig) -> str:
    """`class` as `module:Class`. With an interpreter of its own the file may be written for another Python: it is not looked into."""
    module, name = _split(config.class_)
    path = _module(place, module)
    if path is None:
        where = " or ".join(str(each) for each in place.folders())
        raise RepositoryError(f"{config.class_!r}: there is no {module.replace('.', '/')}.py in {where}")
    files.check(path)
    if not config.python:
        Source(path).check(name)
    return f"{module}:{name}"


def _split(said: str) -> tuple[str, str]:
    module, colon, name = said.partition(":")
    if not colon:
        module, dot, name = said.rpartition(".")
        module = module if dot else name
    if not all(each.isidentifier() for each in (*module.split("."), *name.split("."))):
        raise RepositoryError(f"class: {said!r} is no import path; `module:Class` is needed")
    return module, name


def _module(place: Place, module: str) -> Path | None:
    path = module.replace(".", "/")
    return place.find(f"{path}.py") or place.find(f"{path}/__init__.py")


def _eponymous(place: Place) -> Path | None:
    """The one file that has a class of its own name, in the version's folder, else in the model's."""
    for folder in place.folders():
        files = [folder / name for name in _names(folder) if name.endswith(".py") and name not in _NO_MODELS]
        found = [path for path in files if not path.name.startswith(("_", "test_")) and Source(path).has(path.stem)]
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise RepositoryError(f"{folder}: any of {names} could be meant; say `class: module:Class` in model.yaml")
        if found:
            return found[0]
    return None

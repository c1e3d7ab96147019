"""What stands at a path: a saved model, by its content and without its framework."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from prefork.errors import ModelLoadError
from prefork.repository import files
from prefork.runtimes import pickles, table
from prefork.runtimes.runtime import Runtime

log = logging.getLogger("prefork")

_DEEPEST = 4
"""Folders inside folders that are looked into."""
_SHOWN = 8


class Recognition(msgspec.Struct, frozen=True):
    """A saved model: its runtime, where it is, and what its folder says of it.

    parameters: for the runtime. name, version: the model's, where the folder says them. class_: instead of a runtime, the class
    that a folder of code names.
    """

    runtime: str
    path: Path
    parameters: Mapping[str, Any] = {}
    name: str = ""
    version: str = ""
    class_: str = ""


Layout = Callable[[Path], Recognition | None]
"""Knows a folder by the files that describe it, such as model-settings.json. Raises ModelLoadError for one that cannot be meant."""


def recognise(path: Path, runtime: str = "", layouts: tuple[Layout, ...] = ()) -> Recognition:
    """The saved model at a path. runtime: whose it is, if it is known already. Raises ModelLoadError that says what is there."""
    if not path.exists():
        raise ModelLoadError(f"there is no {path}")
    found = look(path, runtime, layouts)
    if found is None:
        raise ModelLoadError(f"{path}: {_unknown(path)}; kinds of saved models: {', '.join(sorted(table.runtimes()))}")
    return found


def look(path: Path, runtime: str = "", layouts: tuple[Layout, ...] = ()) -> Recognition | None:
    """As `recognise`; None where nothing is there that anybody knows. Raises ModelLoadError for what is unclear or cannot be read."""
    if runtime:
        search = _Search({runtime: table.find(runtime)}, ())
        return search.at(path) or Recognition(runtime, _only_file(path))
    return _Search(table.runtimes(), layouts).at(path)


class _Search:
    """Looks for one saved model of the known kinds."""

    def __init__(self, known: Mapping[str, Runtime], layouts: tuple[Layout, ...]) -> None:
        self._known = known
        self._layouts = layouts

    def at(self, path: Path, depth: int = 0) -> Recognition | None:
        """The model that a file or folder is, or that is in the folder."""
        why = _unreadable(path)
        if why:
            raise ModelLoadError(f"{path} cannot be read: {why}")
        if path.is_dir():
            described = next(filter(None, (layout(path) for layout in self._layouts)), None)
            if described is not None:
                return described
        kind = self._kind(path)
        if kind:
            return Recognition(kind, path)
        return self._inside(path, depth) if path.is_dir() and depth < _DEEPEST else None

    def _inside(self, path: Path, depth: int) -> Recognition | None:
        """The newest of numbered versions, as TensorFlow Serving lays them out, else the one saved model, else the one folder's."""
        entries = entries_of(path)
        versions = sorted((int(each.name), each) for each in entries if each.is_dir() and _is_number(each.name))
        if versions:
            number, newest = versions[-1]
            found = self.at(newest, depth + 1)
            if found is not None:
                return msgspec.structs.replace(found, version=found.version or str(number))
        saved = [(each, self._kind(each)) for each in entries if not _unreadable(each)]
        found = _one([Recognition(kind, each) for each, kind in saved if kind])
        if found is None and len(entries) == 1 and entries[0].is_dir() and not versions:
            return self.at(entries[0], depth + 1)
        return found

    def _kind(self, path: Path) -> str:
        return next((name for name, runtime in self._known.items() if _recognises(runtime, path)), "")


def _recognises(runtime: Runtime, path: Path) -> bool:
    try:
        return runtime.recognises(path)
    except Exception as error:  # noqa: BLE001 - a damaged file is no reason not to ask the others
        log.debug("the runtime %s cannot look at %s: %r", runtime.name, path, error)
        return False


def _one(found: list[Recognition]) -> Recognition | None:
    """The only one, or the one called `model`, as Seldon's and MLServer's servers call theirs. Raises ModelLoadError for several."""
    called = [each for each in found if each.path.name.partition(".")[0] == "model"]
    chosen = called if len(called) == 1 else found
    if len(chosen) > 1:
        names = ", ".join(each.path.name for each in chosen)
        raise ModelLoadError(f"{chosen[0].path.parent}: any of {names} could be meant; name the file")
    return chosen[0] if chosen else None


def _only_file(path: Path) -> Path:
    entries = entries_of(path) if path.is_dir() else []
    return entries[0] if len(entries) == 1 and entries[0].is_file() else path


def entries_of(path: Path) -> list[Path]:
    """What is in a folder, without what is hidden."""
    return sorted(each for each in path.iterdir() if not each.name.startswith("."))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _unreadable(path: Path) -> str:
    """Why a file or folder cannot be read; empty where it can."""
    try:
        if path.is_dir():
            next(path.iterdir(), None)
        elif path.is_file():
            with path.open("rb") as file:
                file.read(1)
        elif odd := files.odd(path):
            return f"it is {odd}, and a file is needed"
    except OSError as error:
        return error.strerror or str(error)
    return ""


# --- words for what is none ---------------------------------------------------------------------------------------


def _unknown(path: Path) -> str:
    if path.is_dir():
        return _unknown_folder(path)
    if path.suffix == ".py":
        return f"that is Python code; serve a class by its name, as in `prefork serve {path.stem}`"
    if _is_safetensors(path):
        return "these are weights (safetensors) without a model; write a class whose load() reads them"
    if path.stat().st_size == 0:
        return "the file is empty"
    if pickles.is_pickle(path):
        packages = ", ".join(sorted(pickles.packages(path) - {"builtins", "copyreg", "joblib", "numpy"})) or "Python"
        return (
            f"that is a pickle of objects of {packages}; if they have scikit-learn's interface, say --runtime sklearn"
        )
    return "that is no saved model of a known kind"


def _unknown_folder(path: Path) -> str:
    entries = entries_of(path)
    if any(each.is_file() and not _unreadable(each) and _is_safetensors(each) for each in entries):
        return (
            "the folder has weights (safetensors) and no model of a known kind; write a class whose load() reads them"
        )
    names = [each.name + (f" ({why})" if (why := _unreadable(each)) else "") for each in entries]
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return f"no saved model is in this folder (it has {', '.join([*names[:_SHOWN], *more]) or 'nothing'})"


def _is_safetensors(path: Path) -> bool:
    """Its head: the length of a JSON object in eight bytes, and the object (github.com/huggingface/safetensors, Format)."""
    with path.open("rb") as file:
        head = file.read(9)
    return len(head) == 9 and head[8:] == b"{" and 0 < int.from_bytes(head[:8], "little") < path.stat().st_size

"""What stands at a path: a saved model, by its content and without its framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from prefork.errors import ModelLoadError
from prefork.runtimes import table
from prefork.runtimes.runtime import Runtime


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
"""Knows a folder by the files that describe it, such as MLmodel or model-settings.json."""


def recognise(path: Path, runtime: str = "", layouts: tuple[Layout, ...] = ()) -> Recognition:
    """The saved model at a path. runtime: whose it is, if it is known already. Raises ModelLoadError that says what is there."""
    if not path.exists():
        raise ModelLoadError(f"there is no {path}")
    found = _recognise(path, runtime, layouts)
    if found is None:
        raise ModelLoadError(f"{path}: {_unknown(path)}; kinds of saved models: {', '.join(sorted(table.runtimes()))}")
    return found


def _recognise(path: Path, runtime: str, layouts: tuple[Layout, ...]) -> Recognition | None:
    if runtime:
        known = table.find(runtime)
        if path.is_file() or known.recognises(path):
            return Recognition(runtime, path)
        return _only([each for each in _files(path) if known.recognises(each)], {runtime: known}) or Recognition(
            runtime, path
        )
    if path.is_dir():
        described = next(filter(None, (layout(path) for layout in layouts)), None)
        if described is not None:
            return described
    kind = _kind(path)
    if kind is not None:
        return Recognition(kind.name, path)
    return _in_folder(path, layouts) if path.is_dir() else None


def _kind(path: Path) -> Runtime | None:
    return next((runtime for runtime in table.runtimes().values() if runtime.recognises(path)), None)


def _in_folder(path: Path, layouts: tuple[Layout, ...]) -> Recognition | None:
    """The one saved model in a folder, or the newest of its numbered versions, as TensorFlow Serving lays them out."""
    versions = sorted((int(each.name), each) for each in path.iterdir() if each.is_dir() and each.name.isdecimal())
    if versions:
        number, newest = versions[-1]
        found = _recognise(newest, "", layouts)
        return msgspec.structs.replace(found, version=str(number)) if found is not None else None
    return _only([each for each in _files(path) if _kind(each) is not None], table.runtimes())


def _only(found: list[Path], known: Mapping[str, Runtime]) -> Recognition | None:
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise ModelLoadError(f"{found[0].parent}: any of {names} could be meant; name the file")
    for path in found:
        for runtime in known.values():
            if runtime.recognises(path):
                return Recognition(runtime.name, path)
    return None


def _files(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if not each.name.startswith("."))


def _unknown(path: Path) -> str:
    if path.is_dir():
        names = [each.name for each in _files(path)]
        return f"no saved model is in this folder (it has {', '.join(names[:8]) or 'nothing'})"
    if path.suffix == ".py":
        return f"that is Python code; serve a class by its name, as in `prefork serve {path.stem}`"
    if path.suffix == ".safetensors":
        return "these are weights without a model; write a class whose load() reads them"
    return "that is no saved model of a known kind"

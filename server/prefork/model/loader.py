"""Finds the user's class, builds it and loads it: with `compat`, the only importer of user code.

The working directory is searched last, so that nothing in it hides an installed module. What cannot be found is a
ModelLoadError of one line that says whose mistake it is; what the user's own code raises is left as it is.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from prefork.compat import finder
from prefork.errors import ModelLoadError
from prefork.model.hooks import found, is_from_default, is_unimplemented
from prefork.model.ownership import Ownership

TRITON = "triton_python_backend_utils"
"""What models for Triton's Python backend import."""


def find(path: str, model_dir: str = "") -> type[Any]:
    """The class, or any other callable that makes the model, behind an import path.

    path: `Iris` (class Iris in module Iris), `pkg.module:Class` or `pkg.module.Class`. model_dir: searched after the
    working directory.
    Raises ModelLoadError when a module is missing or fails, when there is no such class, and when it is not callable.
    """
    module_name, class_path = _split(path)
    _search_last(str(Path.cwd()))
    if model_dir:
        _search_last(str(Path(model_dir).resolve()))
    finder.install()
    module = _imported(module_name)
    cls = _member(module, class_path)
    if not callable(cls):
        raise ModelLoadError(f"{path!r} is a {type(cls).__name__}, not a class that makes a model")
    return cast("type[Any]", cls)


def with_directory(cls: type[Any], parameters: Mapping[str, Any], model_dir: str) -> dict[str, Any]:
    """The parameters, with the directory under `model_dir` or `model_uri` where the constructor takes one of them."""
    takes = _takes(cls)
    name = next((name for name in ("model_dir", "model_uri") if name in takes), None)
    return dict(parameters) if name is None or not model_dir else {name: model_dir, **parameters}


def with_device(cls: type[Any], parameters: Mapping[str, Any], device: object) -> dict[str, Any]:
    """The parameters, with the device under `device` where there is one and the constructor takes it."""
    is_wanted = device is not None and "device" in _takes(cls)
    return {"device": device, **parameters} if is_wanted else dict(parameters)


def _takes(cls: type[Any]) -> set[str]:
    try:
        return set(inspect.signature(cls).parameters)
    except (TypeError, ValueError):  # a builtin that does not say
        return set()


def construct(cls: type[Any], parameters: Mapping[str, Any]) -> object:
    """An object of the class. Its constructor's own exception is not touched.

    Raises ModelLoadError naming the parameters that the constructor does not take, or that it needs and does not get.
    """
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):  # a builtin that does not say
        return cls(**parameters)
    _check_parameters(cls, signature, parameters)
    return cast("object", cls(**parameters))


def load(user_object: object) -> None:
    """Call the object's `load()`, once, if it has one. Whatever it raises propagates.

    Only the NotImplementedError of a SeldonComponent's own `load` is ignored, where an override calls it.
    """
    hook = found(user_object, "load")
    if hook is None:
        return
    try:
        result = hook()
    except Exception as error:
        if is_from_default(error) and (isinstance(error, NotImplementedError) or is_unimplemented(error)):
            return
        raise
    if inspect.iscoroutine(result):
        result.close()
        raise ModelLoadError("load() is asynchronous; make it a plain function: it runs before there is an event loop")


@contextmanager
def forgotten(owned: Ownership) -> Iterator[None]:
    """Have the user's modules imported anew inside; when that fails they are the ones of before again."""
    before = dict(owned.modules())
    for name in before:
        del sys.modules[name]
    importlib.invalidate_caches()
    try:
        yield
    except BaseException:
        for name, _ in owned.modules():
            del sys.modules[name]
        sys.modules.update(before)
        raise


def _split(path: str) -> tuple[str, str]:
    if "/" in path or path.endswith(".py"):
        raise ModelLoadError(f"{path!r} is a file; give an import path: {Path(path).stem}")
    module, separator, name = path.partition(":")
    if not separator:
        module, dot, name = path.rpartition(".")
        module = module if dot else name
    if not all(module.split(".")) or not all(name.split(".")):
        raise ModelLoadError(
            f"{path!r} is no import path; give a class such as Iris, pkg.module:Class or pkg.module.Class"
        )
    return module, name


def _search_last(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModelLoadError(_missing(name, error)) from error
    except (Exception, SystemExit) as error:
        raise ModelLoadError(f"cannot import {name!r}: {type(error).__name__}: {_first_line(error)}") from error


def _missing(name: str, error: ModuleNotFoundError) -> str:
    if error.name is not None and f"{name}.".startswith(f"{error.name}."):
        return f"no module {name!r}: there is no {error.name!r}, neither installed nor in {Path.cwd()}"
    if error.name == TRITON:
        return f"{name!r} is for Triton's Python backend: serve its repository, prefork serve --repository DIR"
    return f"{name!r} imports {error.name!r}, which is not installed: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")


def _member(module: ModuleType, path: str) -> Any:
    try:
        return reduce(getattr, path.split("."), module)
    except AttributeError as error:
        where = getattr(module, "__file__", None) or "built in"
        raise ModelLoadError(f"module {module.__name__!r} ({where}) has no class {path!r}") from error


def _check_parameters(cls: type[Any], signature: inspect.Signature, parameters: Mapping[str, Any]) -> None:
    takes = {
        name: p
        for name, p in signature.parameters.items()
        if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY, p.POSITIONAL_ONLY}
    }
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    unknown = [name for name in parameters if name not in takes and not open_ended]
    missing = [name for name, p in takes.items() if p.default is p.empty and name not in parameters]
    if unknown:
        known = f"it takes {', '.join(takes)}" if takes else "it takes none"
        raise ModelLoadError(f"{_name(cls)} has no parameter {', '.join(map(repr, unknown))}; {known}")
    if missing:
        raise ModelLoadError(f"{_name(cls)} needs the parameter {', '.join(map(repr, missing))}")


def _name(cls: type[Any]) -> str:
    return getattr(cls, "__qualname__", repr(cls))

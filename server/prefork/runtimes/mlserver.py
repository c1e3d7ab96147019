"""A folder for MLServer: `model-settings.json` names the implementation, which for saved models is one of its own runtimes.

Format: https://mlserver.readthedocs.io/en/latest/reference/model-settings.html
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from prefork.errors import ModelLoadError
from prefork.runtimes.recognition import Recognition, recognise

FILE = "model-settings.json"
_RUNTIMES = {
    "mlserver_sklearn": "sklearn",
    "mlserver_xgboost": "xgboost",
    "mlserver_lightgbm": "lightgbm",
    "mlserver_catboost": "catboost",
    "mlserver_mlflow": "mlflow",
    "mlserver_onnx": "onnx",
}
"""Its packages, and the runtimes that serve the same files."""
_NAMES = {"sklearn": {"predict_fn": "method"}}
"""Parameters under `extra` that have other names here."""


class _Parameters(msgspec.Struct):
    uri: str | None = None
    version: str | None = None
    extra: dict[str, Any] | None = None


class _Settings(msgspec.Struct):
    implementation: str
    name: str = ""
    parameters: _Parameters | None = None


def described(folder: Path) -> Recognition | None:
    """The saved model that the file names; None where there is no such file.

    Raises ModelLoadError for an implementation that is none of MLServer's for saved models, and for a model that is not there.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        said = msgspec.json.decode(file.read_bytes(), type=_Settings)
    except msgspec.MsgspecError as error:
        raise ModelLoadError(f"{file}: {error}") from None
    given = said.parameters or _Parameters()
    runtime = _runtime(said.implementation, file)
    found = recognise(_place(given.uri, file), runtime)
    return msgspec.structs.replace(
        found,
        parameters=_renamed(runtime, given.extra or {}),
        name=said.name,
        version=given.version or found.version,
    )


def _runtime(implementation: str, file: Path) -> str:
    runtime = _RUNTIMES.get(implementation.partition(".")[0])
    if runtime is None:
        raise ModelLoadError(
            f"{file}: the implementation {implementation!r} is unknown here; those of {', '.join(_RUNTIMES)} are served. "
            "A class of your own is served by its name, once it has Seldon's predict(X, names) or the named style"
        )
    return runtime


def _place(uri: str | None, file: Path) -> Path:
    """Where the model is: relative to the settings; without a URI, their folder."""
    scheme, colon, rest = (uri or "").partition("://")
    if colon and scheme != "file":
        raise ModelLoadError(f"{file}: parameters.uri {uri!r} is elsewhere; fetch it first, or serve it by its address")
    path = file.parent / (rest if colon else uri or "")
    if not path.exists():
        raise ModelLoadError(f"{file}: parameters.uri {uri!r}: there is no {path}")
    return path


def _renamed(runtime: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    names = _NAMES.get(runtime, {})
    return {names.get(name, name): value for name, value in extra.items()}

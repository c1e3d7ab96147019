"""LightGBM: boosters in text files. They say neither who saved them nor how the classes were called."""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from prefork.errors import BadRequest, ModelLoadError
from prefork.model.columns import Columns
from prefork.payload import Kind, Payload
from prefork.runtimes.boosted import PARAMETERS, Boosted
from prefork.runtimes.runtime import Opened, Options, Runtime, needed, threads

Array = np.ndarray[Any, Any]

_HEAD = 256
_KNOWN = "v4"
_UNNAMED = re.compile(r"Column_\d+")
_SPACE = str.maketrans(dict.fromkeys(" \t\r\n\v\f", "_"))


def recognises(path: Path) -> bool:
    """A text file that begins with `tree` and a header."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return re.match(rb"tree\r?\n(?:version|num_class)=", head) is not None


def open_(path: Path, options: Options) -> Opened:
    """The booster in the file. Raises ModelLoadError for a file that is cut off, and for categories of text."""
    with needed("lightgbm", "lightgbm"):
        import lightgbm as lgb
    count = threads(options)
    header = _header(path)
    try:
        booster = lgb.Booster(model_file=str(path))
    except lgb.basic.LightGBMError as error:
        raise ModelLoadError(
            f"{path} cannot be loaded by LightGBM {lgb.__version__}: {error}{_format(header)}"
        ) from error
    if booster.pandas_categorical:
        raise ModelLoadError(
            f"{path} was trained on a data frame with categories, which are not served without code: encode them as numbers before "
            "training, or write a class that does"
        )
    objective = header.get("objective", "").partition(" ")[0]
    width = booster.num_model_per_iteration()
    classes = {"binary": 2, "multiclass": width, "multiclassova": width}.get(objective, 0)
    run = Boosted(_Values(booster, width, count), classes, options.parameters, "FP64")
    return Opened(
        takes=_takes(booster),
        outputs=run.outputs() if classes or width == 1 else run.outputs(width),
        labels=run.labels(known=False),
        run=run,
        facts=f"{objective or 'its own objective'}, {', '.join(run.methods)}, {count} threads",
    )


def _header(path: Path) -> Mapping[str, str]:
    """The lines before the trees. Raises ModelLoadError where the end is missing: LightGBM would end the process."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.rfind(b"end of trees") < 0:
            raise ModelLoadError(f"{path} is cut off: there is no `end of trees`")
        head = data[: max(0, data.find(b"\nTree="))].decode(errors="replace")
    return dict(line.split("=", 1) for line in head.splitlines() if "=" in line)


def _format(header: Mapping[str, str]) -> str:
    said = header.get("version", "v1")
    return "" if said == _KNOWN else f"; this file has the format {said}, LightGBM 4 writes {_KNOWN}"


def _takes(booster: Any) -> Columns:
    names = tuple(booster.feature_name())
    if all(_UNNAMED.fullmatch(name) for name in names):
        return Columns(len(names), (), "FP64")
    return _Underlined(len(names), names, "FP64")


class _Underlined(Columns):
    """Columns whose names have lost their spaces: LightGBM writes `sepal length` as `sepal_length`. Both are understood."""

    def gather(self, request: Payload) -> Any:
        if request.kind is Kind.TENSOR and request.names:
            names = [str(name).translate(_SPACE) for name in request.names]
            return super().gather(msgspec.structs.replace(request, names=names))
        if isinstance(request.value, dict):
            return super().gather(msgspec.structs.replace(request, value=self._renamed(request.value)))
        return super().gather(request)

    @staticmethod
    def _renamed(value: Mapping[str, Any]) -> dict[str, Any]:
        found = {name.translate(_SPACE): each for name, each in value.items()}
        if len(found) < len(value):
            raise BadRequest(f"a column comes twice among {', '.join(value)}")
        return found


class _Values:
    """The booster's answer to a matrix."""

    def __init__(self, booster: Any, width: int, count: int) -> None:
        self._booster = booster
        self._shape = (-1,) if width == 1 else (-1, width)
        self._count = count

    def __call__(self, matrix: Array) -> Array:
        found = np.asarray(self._booster.predict(matrix, num_threads=self._count))
        return found.reshape((len(matrix), *self._shape[1:]))  # no rows come without their columns


RUNTIME = Runtime(
    name="lightgbm",
    platform="lightgbm_lightgbm",
    extra="lightgbm",
    recognises=recognises,
    open=open_,
    why="it is loaded after the fork, which its threads would not survive, and is small",
    parameters=PARAMETERS,
)

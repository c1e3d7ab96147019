"""XGBoost: boosters in JSON and UBJSON files, also those that XGBClassifier and XGBRegressor have saved."""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from prefork.errors import BadRequest, ModelLoadError
from prefork.model.columns import Columns
from prefork.runtimes.boosted import PARAMETERS, Boosted
from prefork.runtimes.runtime import Opened, Options, Runtime, needed, threads

Array = np.ndarray[Any, Any]

_HEAD = 1024
_TAIL = 256
_JSON = re.compile(rb'\s*\{\s*"(?:learner|version)"\s*:')
_UBJSON = re.compile(rb"\{(?:L\x00{7}|[iU]|l\x00{3}|I\x00)\x07(?:learner|version)")
_PARTS = (b"attributes", b"feature_names", b"gradient_booster", b"learner_model_param")
"""What a saved learner begins with; the configuration of one (`save_config`) begins otherwise."""
_VERSION = re.compile(rb'"version"\s*:\s*\[(\d+),\s*(\d+),\s*(\d+)\]|version\[#[^\[]*?i(.)i(.)i(.)', re.DOTALL)
_BOOSTERS = {b"gbtree", b"gblinear", b"dart"}
_BINARY = ("binary:logistic", "binary:hinge")
_CONFIDENCES = ("multi:softprob", "multi:softmax")


def recognises(path: Path) -> bool:
    """A file that begins as a learner in JSON or UBJSON, or in the binary format of old."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return _is_learner(head) or _is_binary(head)


def _is_learner(head: bytes) -> bool:
    begins = _JSON.match(head) or _UBJSON.match(head)
    return begins is not None and b"learner" in head and any(part in head for part in _PARTS)


def _is_binary(head: bytes) -> bool:
    """The format that XGBoost 3.1 removed: 136 bytes of numbers, then the objective and the booster, each after its length (u64)."""
    for start in (136, 140):  # some begin with `binf`
        if len(head) < start + 8:
            return False
        (length,) = struct.unpack_from("<Q", head, start)
        after = start + 8 + length
        if length < 64 and len(head) >= after + 8:
            (size,) = struct.unpack_from("<Q", head, after)
            if size < 16 and head[after + 8 : after + 8 + size] in _BOOSTERS:
                return True
    return False


def open_(path: Path, options: Options) -> Opened:
    """The booster in the file. Raises ModelLoadError with both versions where it cannot be read, and for categorical features."""
    with needed("xgboost", "xgboost"):
        import xgboost as xgb
    count = threads(options)
    booster = _loaded(xgb, path, count)
    learner = json.loads(booster.save_config())["learner"]
    _check_features(path, booster)
    objective = learner["objective"]["name"]
    classes = _classes(objective, learner)
    if objective == "multi:softmax":  # the same margins, but all of them
        booster.set_param({"objective": "multi:softprob"})
    said = booster.attr("scikit_learn")
    is_classifier = said is not None and json.loads(said).get("_estimator_type") == "classifier"
    run = Boosted(
        _values(xgb, booster, learner, _missing(options), count, of_sklearn=said is not None),
        classes,
        options.parameters,
        "FP32",
        answers_classes=bool(classes) and (is_classifier or objective in {"multi:softmax", "binary:hinge"}),
    )
    targets = int(learner["learner_model_param"].get("num_target", "1"))
    return Opened(
        takes=Columns(booster.num_features(), tuple(booster.feature_names or ()), "FP64"),
        outputs=run.outputs(targets),
        labels=run.labels(known=True) if targets == 1 else {},
        run=run,
        facts=f"{objective}, {', '.join(run.methods)}, {count} threads",
    )


def _loaded(xgb: Any, path: Path, count: int) -> Any:
    booster = xgb.Booster({"nthread": count})
    try:
        with xgb.config_context(verbosity=0):  # it warns of names such as .bst
            booster.load_model(_source(path))
    except xgb.core.XGBoostError as error:
        with path.open("rb") as file:
            if _is_binary(file.read(_HEAD)):
                raise ModelLoadError(
                    f"{path} is in XGBoost's old binary format, which XGBoost {xgb.__version__} does not read: "
                    "load it with XGBoost before 3.1 and save it as .ubj or .json"
                ) from None
        raise ModelLoadError(
            f"{path} cannot be loaded by XGBoost {xgb.__version__}: {_first(error)}{_written(path)}"
        ) from error
    booster.set_param({"nthread": count})  # the file brings its own
    return booster


def _source(path: Path) -> Path | bytearray:
    """The file, or its bytes where its name says another format than they have: of those XGBoost looks at what they are."""
    with path.open("rb") as file:
        is_json = _JSON.match(file.read(_HEAD)) is not None
    return path if is_json == (path.suffix == ".json") else bytearray(path.read_bytes())


def _first(error: Exception) -> str:
    """What was wrong, without the moment, the place in XGBoost's source and the stack."""
    return re.sub(r"^\[[\d:]+\] \S+: ", "", str(error).partition("\nStack trace")[0]).strip()


def _written(path: Path) -> str:
    """By which version it was written: that stands at the end."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        found = _VERSION.search(file.read())
    if found is None:
        return ""
    text = [each.decode() for each in found.groups()[:3]] if found[1] else [str(each[0]) for each in found.groups()[3:]]
    return f"; this file was written by XGBoost {'.'.join(text)}"


def _check_features(path: Path, booster: Any) -> None:
    kinds = booster.feature_types or []
    names = booster.feature_names or [str(at) for at in range(len(kinds))]
    found = [name for name, kind in zip(names, kinds, strict=True) if kind == "c"]
    if found:
        raise ModelLoadError(
            f"{path} was trained on categorical features ({', '.join(found)}), which are not served without code: encode them as "
            "numbers before training, or write a class that does"
        )


def _classes(objective: str, learner: Any) -> int:
    if objective in _BINARY:
        return 2
    return int(learner["learner_model_param"]["num_class"]) if objective in _CONFIDENCES else 0


def _missing(options: Options) -> float:
    said = options.parameters.get("missing", np.nan)
    if not isinstance(said, int | float) or isinstance(said, bool):
        raise ModelLoadError(f"parameters: missing {said!r} is no number")
    return float(said)


def _values(
    xgb: Any, booster: Any, learner: Any, missing: float, count: int, *, of_sklearn: bool
) -> Callable[[Array], Array]:
    """The booster's answer to a matrix. Scikit-learn's interface stops at the best iteration of an early stopping."""
    best = booster.attr("best_iteration") if of_sklearn else None
    rounds = (0, 0 if best is None else int(best) + 1)
    lock = threading.Lock()

    def in_place(matrix: Array) -> Array:
        found: Array = booster.inplace_predict(matrix, iteration_range=rounds, missing=missing)
        return found

    def linear(matrix: Array) -> Array:
        with lock:  # XGBoost promises to be safe among threads for trees only
            data = xgb.DMatrix(matrix, missing=missing, nthread=count, feature_names=booster.feature_names)
            found: Array = booster.predict(data, validate_features=False)
            return found

    chosen = linear if learner["gradient_booster"]["name"] == "gblinear" else in_place

    def values(matrix: Array) -> Array:
        try:
            return chosen(matrix)
        except ValueError as error:  # XGBoostError is one
            raise BadRequest(f"the model does not take these values: {_first(error)}") from error

    return values


RUNTIME = Runtime(
    name="xgboost",
    platform="xgboost_xgboost",
    extra="xgboost",
    recognises=recognises,
    open=open_,
    why="it is loaded after the fork, which its threads would not survive, and is small",
    parameters={**PARAMETERS, "missing": "The number that stands for a missing value, beside null."},
)

"""scikit-learn: estimators and pipelines in pickle, joblib or skops files, and what follows their interface (XGBClassifier, ...)."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prefork.errors import BadRequest, ModelLoadError
from prefork.model.casting import as_bytes
from prefork.model.columns import Columns
from prefork.model.declared import Takes
from prefork.model.features import text
from prefork.model.tensor_inputs import Tensors
from prefork.payload import TensorSpec, datatype_of
from prefork.runtimes import pickles
from prefork.runtimes.runtime import Opened, Options, Runtime, needed

Array = np.ndarray[Any, Any]

METHODS = ("predict", "predict_proba", "decision_function", "predict_log_proba", "transform", "score_samples")
_PACKAGES = {"sklearn", "xgboost", "lightgbm", "catboost", "imblearn"}
"""Whose pickled objects have scikit-learn's interface."""


def recognises(path: Path) -> bool:
    """A pickle or joblib file of an estimator, or a skops archive."""
    return path.is_file() and (_is_skops(path) or bool(pickles.packages(path) & _PACKAGES))


def _is_skops(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return "schema.json" in archive.namelist()


def open_(path: Path, options: Options) -> Opened:
    """The estimator in the file. Raises ModelLoadError with both versions where they do not fit."""
    estimator = _skops(path, options) if _is_skops(path) else _pickle(path, options)
    methods = tuple(name for name in METHODS if callable(getattr(estimator, name, None)))
    if not methods:
        raise ModelLoadError(f"{path} holds a {type(estimator).__qualname__}, which has none of {', '.join(METHODS)}")
    default = str(options.parameters.get("method", methods[0]))
    if default not in methods:
        raise ModelLoadError(f"parameters: method {default!r}: {type(estimator).__qualname__} has {', '.join(methods)}")
    classes = getattr(estimator, "classes_", None)
    return Opened(
        takes=takes(estimator),
        outputs=_outputs(default, classes),
        labels=_labels(classes),
        run=_Asked(estimator, methods, default),
        example=example(estimator),
        facts=f"{type(estimator).__qualname__}, {', '.join(methods)}",
    )


def _pickle(path: Path, options: Options) -> Any:
    pickles.check_safe(path, allowed=options.allow_pickle)
    with needed("sklearn", "sklearn"):
        import joblib
        import sklearn
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            return joblib.load(path)
        except ImportError as error:
            raise ModelLoadError(f"{path} needs a module that is not here: {error}") from error
        except Exception as error:
            raise ModelLoadError(
                f"{path} cannot be read: {type(error).__name__}: {error}{_written(told, sklearn.__version__)}"
            ) from error
        finally:
            _pass_on(told)


def _written(told: list[warnings.WarningMessage], here: str) -> str:
    """By which version it was written, if scikit-learn has said so."""
    said = next((getattr(each.message, "original_sklearn_version", None) for each in told), None)
    return "" if said is None else f"; this file was written by scikit-learn {said}, here is {here}"


def _pass_on(told: list[warnings.WarningMessage]) -> None:
    import logging

    for text_ in dict.fromkeys(str(each.message).partition("\n")[0] for each in told):
        logging.getLogger("prefork").warning("%s", text_)


def _skops(path: Path, options: Options) -> Any:
    with needed("sklearn (skops)", "skops"):
        from skops import io
    trusted = options.parameters.get("trusted")
    unknown = sorted(set(io.get_untrusted_types(file=path)) - set(trusted or ()))
    strange = [name for name in unknown if name.partition(".")[0] not in _PACKAGES]
    if strange:
        raise ModelLoadError(
            f"{path} holds types that are not trusted: {', '.join(strange)}; name them in the parameter `trusted`"
        )
    return io.load(path, trusted=[*unknown, *(trusted or ())])


def takes(estimator: Any) -> Takes:
    """What it was fitted on: texts, a table with names, or a matrix."""
    first = estimator.steps[0][1] if hasattr(estimator, "steps") else estimator
    if hasattr(first, "build_analyzer"):
        return Tensors((TensorSpec("BYTES", (-1,), "input"),))
    names = tuple(map(str, getattr(estimator, "feature_names_in_", ())))
    width = int(getattr(estimator, "n_features_in_", -1))
    return Columns(width, names, "FP64", _datatypes(first), frame=bool(names) and _has_pandas())


def _has_pandas() -> bool:
    try:
        import pandas as pd  # noqa: F401
    except ImportError:
        return False
    return True


def _categories(first: Any) -> dict[str, Array]:
    """The categories that the encoders of a column transformer have seen, by their columns' names."""
    found: dict[str, Array] = {}
    for _, transformer, columns in getattr(first, "transformers_", ()):
        last = transformer.steps[-1][1] if hasattr(transformer, "steps") else transformer
        seen = getattr(last, "categories_", None)
        if seen is not None and len(seen) == len(columns):
            found.update(zip(map(str, columns), seen, strict=True))
    return found


def _datatypes(first: Any) -> dict[str, str]:
    """BYTES for a column of texts."""
    return {name: "BYTES" for name, seen in _categories(first).items() if seen.dtype.kind in "OSU"}


def example(estimator: Any) -> Any:
    """A row that it takes where its encoders know only certain texts; None where zeros will do."""
    first = estimator.steps[0][1] if hasattr(estimator, "steps") else estimator
    names = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    if hasattr(first, "build_analyzer"):
        return {"input": np.array([b"some text"], dtype=object)}
    known = _categories(first)
    if not names or not known:
        return None
    return {name: known[name][:1] if name in known else np.zeros(1) for name in names}


def _outputs(method: str, classes: Any) -> tuple[TensorSpec, ...] | None:
    if isinstance(classes, list):  # several targets
        return None
    if method in {"predict_proba", "predict_log_proba"} and classes is not None:
        return (TensorSpec("FP64", (-1, len(classes)), method),)
    if method == "predict":
        datatype = "FP64" if classes is None else datatype_of(np.asarray(classes)) or ""
        return (TensorSpec(datatype, None if classes is None else (-1,), method),)
    return (TensorSpec("FP64", None, method),)


def _labels(classes: Any) -> dict[str, tuple[str, ...]]:
    if classes is None or isinstance(classes, list):
        return {}
    words = tuple(map(str, np.asarray(classes).tolist()))
    return dict.fromkeys(("predict_proba", "predict_log_proba", "decision_function"), words)


class _Asked:
    """Calls the method that the request asks for."""

    def __init__(self, estimator: Any, methods: tuple[str, ...], default: str) -> None:
        self._estimator = estimator
        self._methods = methods
        self._default = default

    def __call__(self, given: Any, parameters: Mapping[str, Any]) -> dict[str, Array]:
        method = parameters.get("method", self._default)
        if method not in self._methods:
            raise BadRequest(f"parameters: method {str(method)[:60]!r}: the model has {', '.join(self._methods)}")
        if isinstance(given, dict):  # texts
            given = text(given["input"]).tolist()
        try:
            return named(method, getattr(self._estimator, method)(given))
        except (ValueError, TypeError) as error:  # there is no code but scikit-learn's: it is about these values
            raise BadRequest(f"the model does not take these values: {error}") from error


def named(method: str, result: Any) -> dict[str, Array]:
    """A result as outputs: one called as the method, or, of several targets, one for each."""
    if isinstance(result, list):
        return {f"{method}_{at}": plain(each) for at, each in enumerate(result)}
    return {method: plain(result)}


def plain(result: Any) -> Array:
    """As an array that every protocol can carry: dense, and texts as bytes."""
    if hasattr(result, "toarray"):
        result = result.toarray()
    array = np.asarray(result)
    if array.dtype.kind not in "OSU":
        return array
    found = as_bytes(array.astype(object))
    return array if found is None else found


RUNTIME = Runtime(
    name="sklearn",
    platform="sklearn_sklearn",
    extra="sklearn",
    recognises=recognises,
    open=open_,
    parameters={
        "method": "The method that answers: predict, predict_proba, decision_function, transform, ...",
        "trusted": "skops: types outside scikit-learn that may be loaded.",
    },
)

"""scikit-learn: estimators and pipelines in pickle, joblib or skops files, and what follows their interface (XGBClassifier, ...)."""

from __future__ import annotations

import logging
import pydoc
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prefork.errors import BadRequest, ModelFailed, ModelLoadError
from prefork.model.casting import carried
from prefork.model.declared import Takes
from prefork.model.features import text
from prefork.payload import TensorSpec, datatype_of
from prefork.runtimes import fitted, pickles
from prefork.runtimes.runtime import Opened, Options, Runtime, asked_method, needed, trial

log = logging.getLogger("prefork")

Array = np.ndarray[Any, Any]

METHODS = ("predict", "predict_proba", "decision_function", "predict_log_proba", "transform", "score_samples")
_OF_CLASSES = ("predict_proba", "predict_log_proba", "decision_function")
_PACKAGES = {"sklearn", "xgboost", "lightgbm", "catboost", "imblearn"}
"""Whose pickled objects have scikit-learn's interface."""
_HARMLESS = {"collections.OrderedDict", "collections.defaultdict"}
"""What skops does not trust by itself, though it only holds values; lightgbm's models have it."""
_VERSION = "_sklearn_version"


def recognises(path: Path) -> bool:
    """A pickle or joblib file of an estimator, or a skops archive."""
    return path.is_file() and (_is_skops(path) or bool(pickles.packages(path) & _PACKAGES))


def _is_skops(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "schema.json" in archive.namelist()
    except zipfile.BadZipFile:
        return False


def open_(path: Path, options: Options) -> Opened:
    """The estimator in the file. Raises ModelLoadError with both versions where they do not fit."""
    estimator, mismatch = _read(path, options)
    methods = tuple(name for name in METHODS if callable(getattr(estimator, name, None)))
    if not methods:
        raise ModelLoadError(f"{path} holds a {type(estimator).__qualname__}, which has none of {', '.join(METHODS)}")
    default = _default(estimator, methods, options)
    takes, example = fitted.takes(estimator), fitted.example(estimator)
    texts = frozenset(spec.name for spec in takes.described() if spec.datatype == "BYTES")
    asked = _Asked(estimator, methods, default, mismatch, texts)
    return Opened(
        takes=takes,
        outputs=_outputs(asked, takes, example),
        labels=_labels(getattr(estimator, "classes_", None)),
        run=asked,
        example=example,
        facts=f"{type(estimator).__qualname__}, {', '.join(methods)}",
    )


def _default(estimator: Any, methods: tuple[str, ...], options: Options) -> str:
    """The method that answers; of a list, the first that there is."""
    said = options.parameters.get("method", methods[0])
    wanted = [said] if isinstance(said, str) else list(said)
    found = next((name for name in wanted if name in methods), None)
    if found is None:
        named_ = " or ".join(map(repr, wanted))
        raise ModelLoadError(f"parameters: method {named_}: {type(estimator).__qualname__} has {', '.join(methods)}")
    return found


# --- reading ------------------------------------------------------------------------------------------------------


def _read(path: Path, options: Options) -> tuple[Any, str]:
    """The estimator, and, if another version wrote the file, a sentence that says so."""
    is_skops = _is_skops(path)
    if not is_skops:
        pickles.check_safe(path, allowed=options.allow_pickle)
    with needed("sklearn", "sklearn"):
        import joblib
        import sklearn
    read = _skops(path, options) if is_skops else lambda: joblib.load(path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            estimator = read()
        except Exception as error:
            raise ModelLoadError(_why(path, error, _mismatch(_written(path, told), sklearn.__version__))) from error
    mismatch = _mismatch(_written(path, told) if told else "", sklearn.__version__)
    _pass_on(path, told, mismatch)
    return estimator, mismatch


def _skops(path: Path, options: Options) -> Callable[[], Any]:
    """Reads it. Raises ModelLoadError for types that are not trusted."""
    with needed("sklearn (skops)", "sklearn"):
        from skops import io
    said = options.parameters.get("trusted") or ()
    trusted = {said} if isinstance(said, str) else set(said)
    try:
        unknown = set(io.get_untrusted_types(file=path))
    except Exception as error:
        raise ModelLoadError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    known = {name for name in unknown if name in trusted or _is_trusted(name)}
    if unknown - known:
        names = ", ".join(sorted(unknown - known))
        raise ModelLoadError(f"{path} holds types that are not trusted: {names}; name them in the parameter `trusted`")
    return lambda: io.load(path, trusted=sorted(known))


def _is_trusted(name: str) -> bool:
    """Whether it is a class of a package whose models these are, where that class was written, and so no function that it imports."""
    if name in _HARMLESS:
        return True
    found = pydoc.locate(name) if name.partition(".")[0] in _PACKAGES else None
    return isinstance(found, type) and f"{found.__module__}.{found.__qualname__}" == name


def _written(path: Path, told: list[warnings.WarningMessage]) -> str:
    """By which version of scikit-learn it was written, as scikit-learn or the file says; empty where neither does."""
    said = next((getattr(each.message, "original_sklearn_version", None) for each in told), None)
    return said or ("" if _is_skops(path) else pickles.written_by(path, _VERSION))


def _mismatch(written: str, here: str) -> str:
    return f"this file was written by scikit-learn {written}, here is {here}" if written not in {"", here} else ""


def _why(path: Path, error: Exception, mismatch: str) -> str:
    """What went wrong, and what helps."""
    said = f"{path} cannot be read: {type(error).__name__}: {error}"
    missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
    package = (missing or "").partition(".")[0]
    if package and package not in {"sklearn", "numpy"}:
        said = f"{path} needs the module {missing!r}, which is not here; install it, or put its folder on PYTHONPATH"
    elif isinstance(error, AttributeError) and "__main__" in str(error):
        said += "; the class was defined in a script or notebook: move it into a module and save the model again"
    return f"{said}; {mismatch}" if mismatch else said


def _pass_on(path: Path, told: list[warnings.WarningMessage], mismatch: str) -> None:
    """What was warned of while it was read, each once; what every estimator says of versions as one line."""
    if mismatch:
        log.warning("%s: %s; what it predicts may differ, save it again with this version", path.name, mismatch)
    others = [each.message for each in told if not hasattr(each.message, "original_sklearn_version")]
    for line in dict.fromkeys(str(message).partition("\n")[0] for message in others):
        log.warning("%s", line)


# --- describing ---------------------------------------------------------------------------------------------------


def _outputs(asked: _Asked, takes: Takes, example: Any) -> tuple[TensorSpec, ...] | None:
    """As one row is answered; None where it takes no such row."""
    request = trial(takes, example)
    if request is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = asked(takes.gather(request), {})
        except Exception:  # noqa: BLE001 - it does not know this row; the requests' own are another matter
            return None
    return tuple(_spec(name, array) for name, array in found.items()) or None


def _spec(name: str, array: Array) -> TensorSpec:
    return TensorSpec(datatype_of(array) or "", (-1, *array.shape[1:]), name)


def _labels(classes: Any) -> dict[str, tuple[str, ...]]:
    """The classes in their order, of each output that has one column a class."""
    if classes is None:
        return {}
    if isinstance(classes, list):  # several targets
        return {f"{method}_{at}": _words(each) for method in _OF_CLASSES[:2] for at, each in enumerate(classes)}
    return dict.fromkeys(_OF_CLASSES, _words(classes))


def _words(classes: Any) -> tuple[str, ...]:
    return tuple(map(str, np.asarray(classes).tolist()))


# --- asking -------------------------------------------------------------------------------------------------------


class _Asked:
    """Calls the method that the request asks for."""

    def __init__(
        self, estimator: Any, methods: tuple[str, ...], default: str, mismatch: str, texts: frozenset[str]
    ) -> None:
        self._estimator = estimator
        self._methods = methods
        self._default = default
        self._mismatch = mismatch
        self._texts = texts

    def __call__(self, given: Any, parameters: Mapping[str, Any]) -> dict[str, Array]:
        method = asked_method(parameters, self._methods, self._default)
        if isinstance(given, dict):
            given = text(given[fitted.TEXT]).tolist()
        try:
            return named(method, getattr(self._estimator, method)(given))
        except (ValueError, TypeError) as error:  # there is no code but scikit-learn's: it is about these values
            raise BadRequest(f"the model does not take these values{self._suspects(given)}: {error}") from error
        except AttributeError as error:  # of a newer version's code, about what an older one has not saved
            if not self._mismatch:
                raise
            raise ModelFailed(f"{error}; {self._mismatch}: save the model again with this version") from error

    def _suspects(self, given: Any) -> str:
        """The columns of texts that no encoder is known for: only the model knows whether it takes them."""
        if not hasattr(given, "columns"):
            return ""
        odd = [repr(name) for name in given.columns if name not in self._texts and not _is_numeric(given[name])]
        return f" (of columns with texts: {', '.join(odd)})" if odd else ""


def _is_numeric(column: Any) -> bool:
    return getattr(column.dtype, "kind", "O") in "biuf"


def named(method: str, result: Any) -> dict[str, Array]:
    """A result as outputs: one called as the method, or, of several targets, one for each."""
    if isinstance(result, list):
        return {f"{method}_{at}": plain(each) for at, each in enumerate(result)}
    return {method: plain(result)}


def plain(result: Any) -> Array:
    """As an array that every protocol can carry: dense, and texts as bytes."""
    if hasattr(result, "toarray"):
        result = result.toarray()
    return carried(np.asarray(result))


RUNTIME = Runtime(
    name="sklearn",
    platform="sklearn_sklearn",
    extra="sklearn",
    recognises=recognises,
    open=open_,
    parameters={
        "method": "The method that answers: predict, predict_proba, decision_function, transform, ...; of a list, the first there is.",
        "trusted": "skops: types outside scikit-learn that may be loaded.",
    },
)

"""CatBoost: models in .cbm files, with categorical and text features, and classes under their own names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prefork.errors import BadRequest, ModelLoadError
from prefork.model.casting import carried, cast
from prefork.model.columns import Columns
from prefork.payload import TensorSpec, datatype_of
from prefork.runtimes.runtime import Opened, Options, Runtime, asked_method, chosen, needed, threads

Array = np.ndarray[Any, Any]

_MAGIC = b"CBM1"
_EXPONENTS = ("Poisson", "Tweedie")
_KINDS = {"predict": "Class", "predict_proba": "Probability", "decision_function": "RawFormulaVal"}
"""What CatBoost calls the answers of a classifier."""


def recognises(path: Path) -> bool:
    """A file that begins with CatBoost's magic."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def open_(path: Path, options: Options) -> Opened:
    """The model in the file. Raises ModelLoadError."""
    with needed("catboost", "catboost"):
        import catboost
    count = threads(options)
    model = catboost.CatBoost()
    try:
        model.load_model(str(path))
    except catboost.CatBoostError as error:
        raise ModelLoadError(f"{path} cannot be loaded by CatBoost {catboost.__version__}: {error}") from error
    if model.get_embedding_feature_indices():
        raise ModelLoadError(f"{path} was trained on embeddings, which are not served without code: write a class")
    run = _Asked(model, catboost.CatBoostError, options, count)
    labels = tuple(map(str, run.classes))
    return Opened(
        takes=_takes(model),
        outputs=run.outputs(),
        labels=dict.fromkeys(("predict_proba", "decision_function"), labels) if labels else {},
        run=run,
        facts=f"{run.loss}, {', '.join(run.methods)}, {count} threads",
    )


def _takes(model: Any) -> Columns:
    """Numbers go as one matrix; with words among the columns they go as a data frame."""
    names = tuple(map(str, model.feature_names_))
    words = {*model.get_cat_feature_indices(), *model.get_text_feature_indices()}
    if words:
        datatypes = {name: "BYTES" if at in words else "FP64" for at, name in enumerate(names)}
        return _Words(len(names), names, "FP64", datatypes, frame=True)
    unnamed = names == tuple(map(str, range(len(names))))
    return Columns(len(names), () if unnamed else names, "FP64")


class _Words(Columns):
    """Columns of words, where a whole number is one too: CatBoost takes 7 and `7` for the same category."""

    def _framed(self, columns: dict[str, Array]) -> Any:
        return super()._framed({name: self._as_text(name, array) for name, array in columns.items()})

    def _as_text(self, name: str, array: Array) -> Array:
        is_word = self._of(name) == "BYTES" and array.dtype.kind in "iuf"
        whole = cast(array, "INT64") if is_word else None
        return array if whole is None else whole.astype(str).astype(object)


class _Asked:
    """Calls the method that the request asks for."""

    def __init__(self, model: Any, refusal: type[Exception], options: Options, count: int) -> None:
        self._model = model
        self._refusal = refusal
        self._count = count
        self.loss = str(json.loads(model.get_metadata()["params"])["loss_function"]["type"])
        self.classes = np.asarray(model.classes_).tolist()
        self.methods = tuple(_KINDS) if self.classes else ("predict",)
        self._default = chosen(options.parameters, "method", self.methods, "predict")

    def __call__(self, given: Any, parameters: Mapping[str, Any]) -> dict[str, Array]:
        method = asked_method(parameters, self.methods, self._default)
        try:
            found = self._model.predict(given, prediction_type=self._kind(method), thread_count=self._count)
        except self._refusal as error:
            raise BadRequest(f"the model does not take these values: {error}") from error
        return {method: _plain(np.asarray(found))}

    def _kind(self, method: str) -> str:
        """As CatBoostClassifier and CatBoostRegressor choose it."""
        if self.classes:
            return _KINDS[method]
        if self.loss in _EXPONENTS:
            return "Exponent"
        return self.loss if self.loss == "RMSEWithUncertainty" else "RawFormulaVal"

    def outputs(self) -> tuple[TensorSpec, ...]:
        """The output of the method that answers by default."""
        if not self.classes:
            return (TensorSpec("FP64", (-1,) if self.loss in {"RMSE", *_EXPONENTS} else None, self._default),)
        if self._default == "predict":
            return (TensorSpec(datatype_of(np.asarray(self.classes)) or "", (-1,), "predict"),)
        width = len(self.classes)
        is_one = self._default == "decision_function" and width == 2
        return (TensorSpec("FP64", (-1,) if is_one else (-1, width), self._default),)


def _plain(array: Array) -> Array:
    """Texts as bytes; the classes of several, which are a column each, in a row."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    return carried(array)


RUNTIME = Runtime(
    name="catboost",
    platform="catboost_catboost",
    extra="catboost",
    recognises=recognises,
    open=open_,
    why="it is loaded after the fork, which its threads would not survive, and is small",
    parameters={
        "method": "What answers: predict, and of a classifier predict_proba or decision_function.",
        "threads": "Threads of one request.",
    },
)

"""What boosted trees answer: the library's own values, a probability for each class, or the likeliest class."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from prefork.errors import ModelLoadError
from prefork.payload import TensorSpec
from prefork.runtimes.runtime import asked_method, chosen

Array = np.ndarray[Any, Any]

PARAMETERS = {
    "method": "What answers: predict, and of a classifier predict_proba or predict_class.",
    "labels": "The classes' names in their order, as a list or divided by commas; the file does not say them.",
    "threads": "Threads of one request.",
}


class Boosted:
    """Calls a booster, whose answers are [rows] or [rows, classes], and makes of them what the request asks for.

    values: the booster's own answer to a matrix. classes: how many there are, 0 for a model of values. answers_classes: whether
    `predict` gives the likeliest class, as the library's classifier does, or the values, as its booster does. datatype: the values'.
    """

    def __init__(
        self,
        values: Callable[[Any], Array],
        classes: int,
        parameters: Mapping[str, Any],
        datatype: str,
        *,
        answers_classes: bool = False,
    ) -> None:
        self._values = values
        self._classes = classes
        self._datatype = datatype
        self._answers_classes = answers_classes
        self.methods = ("predict", "predict_proba", "predict_class") if classes else ("predict",)
        self.method = chosen(parameters, "method", self.methods, "predict")
        self._labels = _labels(parameters.get("labels"), classes)

    def __call__(self, given: Any, parameters: Mapping[str, Any]) -> dict[str, Array]:
        """The output that the request's `method` asks for. Raises BadRequest."""
        method = asked_method(parameters, self.methods, self.method)
        found = self._values(given)
        if self._is_class(method):
            return {method: self._named(likeliest(found, self._classes))}
        return {method: probabilities(found) if method == "predict_proba" else found}

    def outputs(self, targets: int = 1) -> tuple[TensorSpec, ...]:
        """The output of the method that answers by default. targets: how many values a row has, of a model of values."""
        if self._is_class(self.method):
            datatype = "BYTES" if self._labels else "INT64"
            return (TensorSpec(datatype, (-1,) if targets == 1 else (-1, targets), self.method),)
        columns = self._classes if self.method == "predict_proba" or self._classes > 2 else 1
        width = targets if targets > 1 else columns
        return (TensorSpec(self._datatype, (-1,) if width == 1 else (-1, width), self.method),)

    def labels(self, *, known: bool) -> dict[str, tuple[str, ...]]:
        """Of the outputs with a column a class. known: whether the classes are 0, 1, ... where nobody has named them."""
        found = self._labels or (tuple(map(str, range(self._classes))) if known else ())
        is_wide = self._classes > 2 and not self._answers_classes
        columns = ("predict_proba", "predict") if is_wide else ("predict_proba",)
        return dict.fromkeys(columns, found) if found and self._classes else {}

    def _is_class(self, method: str) -> bool:
        return method == "predict_class" or (method == "predict" and self._answers_classes)

    def _named(self, classes: Array) -> Array:
        if not self._labels:
            return classes
        names = np.fromiter((name.encode() for name in self._labels), dtype=object, count=len(self._labels))
        found: Array = names[classes]
        return found


def probabilities(found: Array) -> Array:
    """A column a class; a booster of two classes gives the second one's alone."""
    return np.stack((1.0 - found, found), axis=1) if found.ndim == 1 else found


def likeliest(found: Array, classes: int) -> Array:
    """The class of each row, INT64; of several targets, whether each holds."""
    if found.ndim == 1 or classes == 2:
        return (found > 0.5).astype(np.int64)
    return np.asarray(np.argmax(found, axis=1), dtype=np.int64)


def _labels(said: Any, classes: int) -> tuple[str, ...]:
    if said is None:
        return ()
    if isinstance(said, str):
        said = _listed(said)
    if not isinstance(said, list | tuple) or len(said) != classes:
        have = f"{classes} classes" if classes else "no classes"
        raise ModelLoadError(f"parameters: labels {said!r} do not fit; the model has {have}")
    return tuple(map(str, said))


def _listed(said: str) -> Any:
    """A list in JSON, or divided by commas; what is broken stays what it is."""
    if not said.lstrip().startswith("["):
        return [each.strip() for each in said.split(",")]
    try:
        return json.loads(said)
    except ValueError:
        return said

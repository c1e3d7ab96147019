"""What a fitted scikit-learn estimator was fitted on: its columns, those of texts among them, and a row that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from prefork.errors import ModelLoadError
from prefork.model.columns import Columns
from prefork.model.declared import Takes
from prefork.model.tensor_inputs import Tensors
from prefork.payload import TensorSpec

Array = np.ndarray[Any, Any]
TEXT = "input"
"""What metadata calls the texts of a model that takes one text a row."""
_SAMPLE = "some text"


def takes(estimator: Any) -> Takes:
    """Texts, a table with names, or a matrix. Raises ModelLoadError for columns of texts by name where there is no pandas."""
    if _reads_texts(_first(estimator)):
        return Tensors((TensorSpec("BYTES", (-1,), TEXT),))
    names = _names(estimator)
    width = int(getattr(estimator, "n_features_in_", -1))
    kinds = {at: "BYTES" for at, seen in _samples(estimator) if isinstance(seen, str)}
    if not names:
        return Columns(width, (), "" if kinds else "FP64")
    if kinds and not _has_pandas():
        raise ModelLoadError("a model of columns by name, some of them texts, needs pandas: pip install pandas")
    datatypes = {names[at]: datatype for at, datatype in kinds.items()}
    return Columns(width, names, "FP64", datatypes, frame=_has_pandas())


def example(estimator: Any) -> Any:
    """One row that it takes where it knows certain texts or values only; None where zeros will do."""
    if _reads_texts(_first(estimator)):
        return {TEXT: np.array([_SAMPLE.encode()], dtype=object)}
    samples = dict(_samples(estimator))
    if not samples:
        return None
    names = _names(estimator)
    cells = [samples.get(at, 0.0) for at in range(int(getattr(estimator, "n_features_in_", len(names))))]
    if names:
        return {name: _cell(value) for name, value in zip(names, cells, strict=True)}
    return np.array([cells], dtype=object if any(isinstance(cell, str) for cell in cells) else np.float64)


def _cell(value: Any) -> Array:
    return np.array([value.encode()], dtype=object) if isinstance(value, str) else np.array([float(value)])


def _names(estimator: Any) -> tuple[str, ...]:
    return tuple(map(str, getattr(estimator, "feature_names_in_", ())))


def _first(estimator: Any) -> Any:
    """The step that sees the request's own columns; inside a search or a calibration, that of the fitted estimator."""
    while True:
        inner = getattr(estimator, "best_estimator_", None)
        if inner is None and getattr(estimator, "steps", None):
            inner = estimator.steps[0][1]
        if inner is None:
            return estimator
        estimator = inner


def _samples(estimator: Any) -> Iterator[tuple[int, Any]]:
    """A value that is known of a column, by the column's number."""
    first = _first(estimator)
    yield from _seen(first, range(int(getattr(first, "n_features_in_", 0))))
    names = _names(first) or _names(estimator)
    for _, transformer, columns in getattr(first, "transformers_", ()):
        at = _numbers(columns, names)
        steps = [step for _, step in transformer.steps] if hasattr(transformer, "steps") else [transformer]
        if steps and _reads_texts(steps[0]) and len(at) == 1:
            yield at[0], _SAMPLE
        for step in steps:
            yield from _seen(step, at)


def _seen(step: Any, columns: Any) -> Iterator[tuple[int, Any]]:
    """The first category of each column that an encoder has seen."""
    categories = getattr(step, "categories_", None)
    if not isinstance(categories, list) or len(categories) != len(columns):
        return
    for at, known in zip(columns, categories, strict=True):
        found = next((each for each in np.asarray(known).tolist() if each is not None and each == each), None)  # noqa: PLR0124 - no NaN
        if isinstance(found, str | int | float):
            yield at, found


def _numbers(columns: Any, names: tuple[str, ...]) -> list[int]:
    """The columns of a ColumnTransformer, which are names, numbers, a mask or a slice, as numbers."""
    if isinstance(columns, slice):
        return list(range(len(names)))[columns] if not isinstance(columns.start, str) else []
    found = [columns] if isinstance(columns, str | int) else list(columns)
    if found and all(isinstance(each, bool | np.bool_) for each in found):
        return [at for at, is_chosen in enumerate(found) if is_chosen]
    return [
        names.index(each) if isinstance(each, str) else int(each)
        for each in found
        if not isinstance(each, str) or each in names
    ]


def _reads_texts(step: Any) -> bool:
    return hasattr(step, "build_analyzer")


def _has_pandas() -> bool:
    try:
        import pandas as pd  # noqa: F401
    except ImportError:
        return False
    return True

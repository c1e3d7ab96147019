"""CatBoost's models: of values, of two and of three classes, with categories among the columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import catboost
import numpy as np
import pandas as pd

from frameworks.cases.case import Case, Tensors

NAMES = ("sepal length", "sepal width", "petal length")
SEEN = np.random.default_rng(7).random((80, 3))
ROWS = np.array([[0.1, 0.9, 0.3], [0.8, 0.2, 0.25], [0.5, 0.5, 0.7]])
COLUMNS = dict(zip(NAMES, ROWS.T, strict=True))
COLOURS = {**COLUMNS, "colour": np.array([b"red", b"blue", b"never seen"], object)}
TRUTH = {
    "values": SEEN.sum(axis=1),
    "two": np.where(SEEN[:, 0] > 0.5, "yes", "no"),
    "three": (SEEN[:, 0] * 3).astype(int),
}


def frame(rows: Any = SEEN) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(NAMES))


def fitted(truth: str, seen: Any, **options: Any) -> Any:
    """An estimator of scikit-learn's interface."""
    kind = catboost.CatBoostRegressor if truth == "values" else catboost.CatBoostClassifier
    made = kind(iterations=4, thread_count=1, verbose=0, allow_writing_files=False, **options)
    return made.fit(seen, TRUTH[truth])


def estimator(truth: str, method: str) -> Callable[[Path], tuple[Path, Tensors]]:
    def make(folder: Path) -> tuple[Path, Tensors]:
        model = fitted(truth, frame())
        path = folder / "model.cbm"
        model.save_model(path)
        found = np.asarray(getattr(model, method)(frame(ROWS)))
        return path, {method: found.ravel() if found.shape[1:] == (1,) else found}

    return make


def categories(folder: Path) -> tuple[Path, Tensors]:
    """Words in one column, one of which it has never seen."""
    seen = frame().assign(colour=np.where(SEEN[:, 1] > 0.5, "red", "blue"))
    model = fitted("two", seen, cat_features=["colour"])
    model.save_model(folder / "model.cbm")
    asked = frame(ROWS).assign(colour=["red", "blue", "never seen"])
    return folder / "model.cbm", {"predict_proba": model.predict_proba(asked)}


def matrix(folder: Path) -> tuple[Path, Tensors]:
    """Trained on a matrix: the columns have no names."""
    model = fitted("values", SEEN)
    model.save_model(folder / "model.cbm")
    return folder / "model.cbm", {"predict": model.predict(ROWS)}


def _frames(
    name: str, make: Callable[[Path], tuple[Path, Tensors]], given: Tensors = COLUMNS, **parameters: Any
) -> Case:
    return Case("catboost", name, make, given, "catboost", parameters=parameters, is_frame=True)


CASES = [
    _frames("catboost-values", estimator("values", "predict")),
    _frames("catboost-two", estimator("two", "predict")),
    _frames("catboost-two-proba", estimator("two", "predict_proba"), method="predict_proba"),
    _frames("catboost-three", estimator("three", "predict")),
    _frames("catboost-three-proba", estimator("three", "predict_proba"), method="predict_proba"),
    _frames("catboost-categories", categories, COLOURS, method="predict_proba"),
    Case("catboost", "catboost-matrix", matrix, {"input": ROWS}, "catboost"),
]

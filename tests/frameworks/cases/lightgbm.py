"""LightGBM's boosters: of values, of two and of three classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd

from frameworks.cases.case import Case, Tensors

NAMES = ("sepal_length", "sepal_width", "petal_length")
SEEN = np.random.default_rng(7).random((80, 3))
ROWS = np.array([[0.1, 0.9, 0.3], [0.8, 0.2, 0.25], [0.5, 0.5, 0.7]])
COLUMNS = dict(zip(NAMES, ROWS.T, strict=True))
TRUTH = {
    "values": SEEN.sum(axis=1),
    "two": np.where(SEEN[:, 0] > 0.5, "yes", "no"),
    "three": (SEEN[:, 0] * 3).astype(int),
}


def frame(rows: Any = SEEN) -> pd.DataFrame:
    """Trained on names with spaces, which LightGBM replaces."""
    return pd.DataFrame(rows, columns=[name.replace("_", " ") for name in NAMES])


def fitted(truth: str, seen: Any) -> Any:
    """An estimator of scikit-learn's interface."""
    kind = lgb.LGBMRegressor if truth == "values" else lgb.LGBMClassifier
    return kind(n_estimators=4, min_child_samples=3, n_jobs=1, verbose=-1).fit(seen, TRUTH[truth])


def estimator(truth: str, method: str, *, of_booster: bool = False) -> Callable[[Path], tuple[Path, Tensors]]:
    """`predict` is the booster's, the other methods those of LGBMClassifier."""

    def make(folder: Path) -> tuple[Path, Tensors]:
        model = fitted(truth, frame())
        path = folder / "model.txt"
        model.booster_.save_model(path)
        asked = model.booster_ if of_booster else model
        called = "predict" if method == "predict_class" else method
        return path, {method: np.asarray(getattr(asked, called)(frame(ROWS)))}

    return make


def matrix(folder: Path) -> tuple[Path, Tensors]:
    """Trained on a matrix: LightGBM's own names are no names."""
    model = fitted("values", SEEN)
    model.booster_.save_model(folder / "model.txt")
    return folder / "model.txt", {"predict": model.booster_.predict(ROWS)}


def _frames(name: str, make: Callable[[Path], tuple[Path, Tensors]], **parameters: Any) -> Case:
    return Case("lightgbm", name, make, COLUMNS, "lightgbm", parameters=parameters, is_frame=True)


CASES = [
    _frames("lightgbm-values", estimator("values", "predict")),
    _frames("lightgbm-two", estimator("two", "predict", of_booster=True)),
    _frames("lightgbm-two-proba", estimator("two", "predict_proba"), method="predict_proba"),
    _frames("lightgbm-two-class", estimator("two", "predict_class"), method="predict_class", labels="no,yes"),
    _frames("lightgbm-three", estimator("three", "predict", of_booster=True)),
    _frames("lightgbm-three-class", estimator("three", "predict_class"), method="predict_class"),
    Case("lightgbm", "lightgbm-matrix", matrix, {"input": ROWS}, "lightgbm"),
]

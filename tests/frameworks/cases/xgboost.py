"""XGBoost's boosters: of values, of two and of three classes, from its own and from scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost as xgb

from frameworks.cases.case import Case, Tensors

NAMES = ("sepal length", "sepal width", "petal length")
SEEN = np.random.default_rng(7).random((80, 3))
ROWS = np.array([[0.1, 0.9, 0.3], [0.8, 0.2, 0.25], [0.5, 0.5, 0.7]])
COLUMNS = dict(zip(NAMES, ROWS.T, strict=True))
TRUTH = {
    "values": SEEN.sum(axis=1),
    "two": (SEEN[:, 0] > 0.5).astype(int),
    "three": (SEEN[:, 0] * 3).astype(int),
}


def frame(rows: Any = SEEN) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(NAMES))


def fitted(truth: str, seen: Any, **options: Any) -> Any:
    """An estimator of scikit-learn's interface."""
    kind = xgb.XGBRegressor if truth == "values" else xgb.XGBClassifier
    return kind(n_estimators=4, max_depth=3, n_jobs=1, **options).fit(seen, TRUTH[truth])


def estimator(truth: str, suffix: str, method: str) -> Callable[[Path], tuple[Path, Tensors]]:
    def make(folder: Path) -> tuple[Path, Tensors]:
        model = fitted(truth, frame())
        path = folder / f"model{suffix}"
        model.save_model(path)
        return path, {method: getattr(model, method)(pd.DataFrame(COLUMNS))}

    return make


def booster(folder: Path) -> tuple[Path, Tensors]:
    """XGBoost's own interface, without names: probabilities of the second class."""
    data = xgb.DMatrix(SEEN, TRUTH["two"], nthread=1)
    model = xgb.train({"objective": "binary:logistic", "nthread": 1}, data, 4)
    model.save_model(folder / "model.ubj")
    return folder / "model.ubj", {"predict": model.predict(xgb.DMatrix(ROWS, nthread=1))}


def linear(folder: Path) -> tuple[Path, Tensors]:
    """No trees."""
    model = xgb.train({"booster": "gblinear", "nthread": 1}, xgb.DMatrix(SEEN, TRUTH["values"], nthread=1), 4)
    model.save_model(folder / "model.json")
    return folder / "model.json", {"predict": model.predict(xgb.DMatrix(ROWS, nthread=1))}


def _frames(name: str, make: Callable[[Path], tuple[Path, Tensors]], **parameters: Any) -> Case:
    return Case("xgboost", name, make, COLUMNS, "xgboost-cpu", parameters=parameters, is_frame=True)


CASES = [
    _frames("xgboost-values", estimator("values", ".json", "predict")),
    _frames("xgboost-two", estimator("two", ".ubj", "predict")),
    _frames("xgboost-two-proba", estimator("two", ".json", "predict_proba"), method="predict_proba"),
    _frames("xgboost-three", estimator("three", ".ubj", "predict")),
    _frames("xgboost-three-proba", estimator("three", ".ubj", "predict_proba"), method="predict_proba"),
    Case("xgboost", "xgboost-booster", booster, {"input": ROWS}, "xgboost-cpu"),
    Case("xgboost", "xgboost-linear", linear, {"input": ROWS}, "xgboost-cpu"),
]

"""scikit-learn's estimators and pipelines, pickled, compressed by joblib and in skops archives."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import skops.io
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from frameworks.cases.case import Case, Tensors

X, Y = load_iris(return_X_y=True)
WORDS = np.array(["setosa", "versicolor", "virginica"])[Y]
ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.0, 3.0, 5.0, 2.0], [6.7, 3.1, 4.4, 1.4]])
MATRIX = {"input": ROWS}
PEOPLE = pd.DataFrame(
    {"age": [30, 40, 50, 60], "city": ["Oslo", "Rome", "Oslo", "Bern"], "height": [1.7, 1.8, 1.6, 1.9]}
)
ASKED = {
    "age": np.array([33, 61]),
    "city": np.array([b"Rome", b"Oslo"], object),
    "height": np.array([1.75, 1.65]),
}
TEXTS = np.array([b"good fun", b"a bad day"], object)


def pickled(model: Any, folder: Path) -> Path:
    (folder / "model.pkl").write_bytes(pickle.dumps(model))
    return folder / "model.pkl"


def compressed(model: Any, folder: Path) -> Path:
    joblib.dump(model, folder / "model.joblib", compress=("gzip", 3))
    return folder / "model.joblib"


def archived(model: Any, folder: Path) -> Path:
    skops.io.dump(model, folder / "model.skops")
    return folder / "model.skops"


def _case(
    name: str,
    fitted: Callable[[], Any],
    save: Callable[[Any, Path], Path],
    given: Tensors,
    asked: Any,
    *,
    method: str = "predict",
    is_said: bool = False,
    is_frame: bool = False,
) -> Case:
    """One that is asked `method`, which is said as a parameter where it is not the default."""

    def make(folder: Path) -> tuple[Path, Tensors]:
        model = fitted()
        found = getattr(model, method)(asked)
        dense = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
        return save(model, folder), {method: dense}

    parameters = {"method": method} if is_said else {}
    return Case("sklearn", f"sklearn-{name}", make, given, "scikit-learn", parameters=parameters, is_frame=is_frame)


def mixed() -> Any:
    """Numbers and texts in one table."""
    columns = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["age", "height"]))
    return make_pipeline(columns, LogisticRegression()).fit(PEOPLE, [0, 1, 0, 1])


def texts() -> Any:
    return make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(
        ["good", "bad", "fun", "day"], ["+", "-", "+", "-"]
    )


def _people() -> pd.DataFrame:
    return pd.DataFrame({"age": [33, 61], "city": ["Rome", "Oslo"], "height": [1.75, 1.65]})


CASES = [
    _case("pickle", lambda: LogisticRegression(max_iter=500).fit(X, Y), pickled, MATRIX, ROWS),
    _case("joblib", lambda: RandomForestClassifier(5, random_state=0).fit(X, WORDS), compressed, MATRIX, ROWS),
    _case("skops", lambda: RandomForestRegressor(5, random_state=0).fit(X, Y), archived, MATRIX, ROWS),
    _case("mixed", mixed, pickled, ASKED, _people(), is_frame=True),
    _case("texts", texts, archived, {"input": TEXTS}, ["good fun", "a bad day"], is_frame=True),
    _case(
        "probabilities",
        lambda: LogisticRegression(max_iter=500).fit(X, WORDS),
        archived,
        MATRIX,
        ROWS,
        method="predict_proba",
        is_said=True,
    ),
    _case("decision", lambda: LinearSVC().fit(X, Y), pickled, MATRIX, ROWS, method="decision_function", is_said=True),
    _case("regressor", lambda: Ridge().fit(X, Y), pickled, MATRIX, ROWS),
    _case("targets", lambda: MultiOutputRegressor(Ridge()).fit(X, X[:, :2]), pickled, MATRIX, ROWS),
    _case("transformer", lambda: StandardScaler().fit(X), archived, MATRIX, ROWS, method="transform"),
]

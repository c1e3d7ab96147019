"""MLflow's folders: one of a flavour with a signature, one of a user's own class, one that takes tensors."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from frameworks.cases.case import Case, Tensors

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of its own type hints
    import mlflow.pyfunc
    import mlflow.sklearn
    from mlflow.models import infer_signature

IRIS = load_iris(as_frame=True)
ROWS = pd.DataFrame([[5.1, 3.5, 1.4, 0.2], [6.0, 3.0, 5.0, 2.0]], columns=IRIS.data.columns)
COLUMNS = {name: ROWS[name].to_numpy() for name in ROWS}
SHOP = pd.DataFrame({"price": [1.5, 2.0], "count": [3, 4], "item": ["a", "b"]})
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def predicted(path: Path, given: Any) -> Any:
    """What MLflow itself answers."""
    return mlflow.pyfunc.load_model(str(path)).predict(given)


def flavour(folder: Path) -> tuple[Path, Tensors]:
    """Saved as skops, which is mlflow's default."""
    model = LogisticRegression(max_iter=500).fit(IRIS.data, IRIS.target)
    path = folder / "iris"
    signature = infer_signature(IRIS.data, model.predict(IRIS.data))
    mlflow.sklearn.save_model(model, path, signature=signature, input_example=ROWS)
    return path, {"predictions": predicted(path, ROWS)}


def cloudpickled(folder: Path) -> tuple[Path, Tensors]:
    """Saved as cloudpickle, answering probabilities."""
    model = RandomForestClassifier(5, random_state=0).fit(IRIS.data, IRIS.target)
    path = folder / "forest"
    mlflow.sklearn.save_model(
        model,
        path,
        serialization_format="cloudpickle",
        signature=infer_signature(IRIS.data, model.predict_proba(IRIS.data)),
        pyfunc_predict_fn="predict_proba",
    )
    return path, {"predictions": predicted(path, ROWS)}


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it recommends type hints

    class Shop(mlflow.pyfunc.PythonModel):
        """Answers a data frame."""

        def predict(self, context, model_input, params=None):
            total = model_input["price"] * model_input["count"]
            return total.to_frame("total").assign(name=model_input["item"] + "!")

    class Double(mlflow.pyfunc.PythonModel):
        """Takes and answers tensors by name."""

        def predict(self, context, model_input, params=None):
            return {"double": model_input["x"] * 2, "sum": model_input["x"].sum(axis=1)}


def _of_class(model: Any, path: Path, given: Any) -> Path:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the server cannot import this file
    signature = infer_signature(given, model.predict(None, given))
    mlflow.pyfunc.save_model(path, python_model=model, signature=signature)
    return path


def custom(folder: Path) -> tuple[Path, Tensors]:
    path = _of_class(Shop(), folder / "shop", SHOP)
    answer = predicted(path, SHOP)
    return path, {"total": answer["total"].to_numpy(), "name": answer["name"].to_numpy(dtype=object)}


def tensors(folder: Path) -> tuple[Path, Tensors]:
    path = _of_class(Double(), folder / "double", {"x": MATRIX})
    return path, predicted(path, {"x": MATRIX})


CASES = [
    Case("mlflow", "mlflow-sklearn", flavour, COLUMNS, "mlflow-skinny", is_frame=True),
    Case("mlflow", "mlflow-cloudpickle", cloudpickled, COLUMNS, "mlflow-skinny", is_frame=True),
    Case(
        "mlflow",
        "mlflow-class",
        custom,
        {
            "price": SHOP["price"].to_numpy(),
            "count": SHOP["count"].to_numpy(),
            "item": np.array([b"a", b"b"], object),
        },
        "mlflow-skinny",
        is_frame=True,
    ),
    Case("mlflow", "mlflow-tensors", tensors, {"x": MATRIX}, "mlflow-skinny"),
]

"""The XGBoost runtime beyond its cases: which methods answer, missing values, and what is refused in which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from frameworks.cases.xgboost import COLUMNS, NAMES, ROWS, SEEN, TRUTH, fitted, frame
from prefork.errors import BadRequest, ModelLoadError
from prefork.payload import Kind, Payload
from prefork.runtimes import xgboost
from prefork.runtimes.recognition import recognise
from prefork.runtimes.runtime import Opened, Options

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]


def opened(path: Path, **parameters: Any) -> Opened:
    return xgboost.open_(path, Options(parameters=parameters))


def asked(model: Opened, value: Any, **parameters: Any) -> dict[str, Any]:
    kind = Kind.TENSORS if isinstance(value, dict) else Kind.TENSOR
    return dict(model.run(model.takes.gather(Payload(kind, value)), parameters))


def saved(model: Any, folder: Path, name: str = "model.json") -> Path:
    model.save_model(folder / name)
    return folder / name


def trained(truth: str, objective: str, **options: Any) -> Any:
    """By XGBoost's own interface."""
    data = xgb.DMatrix(SEEN, TRUTH[truth], nthread=1)
    return xgb.train({"objective": objective, "nthread": 1, "max_depth": 3, **options}, data, 4)


@pytest.mark.parametrize("name", ["model.json", "model.ubj", "model.bst", "model"])
@pytest.mark.parametrize("written", ["written.json", "written.ubj"])
def test_what_it_is_called_does_not_matter(tmp_path: Path, name: str, written: str):
    """JSON and UBJSON are known by their content."""
    model = fitted("values", frame())
    path = saved(model, tmp_path, written).rename(tmp_path / name)
    assert recognise(path).runtime == "xgboost"
    np.testing.assert_array_equal(asked(opened(path), COLUMNS)["predict"], model.predict(frame(ROWS)))


def test_a_requests_method(tmp_path: Path):
    """A classifier answers classes, and probabilities where the request asks for them."""
    model = fitted("two", frame())
    found = opened(saved(model, tmp_path))
    for method in ("predict", "predict_proba"):
        answer = asked(found, COLUMNS, method=method)
        np.testing.assert_array_equal(answer[method], getattr(model, method)(frame(ROWS)))
    assert found.labels == {"predict_proba": ("0", "1")}
    with pytest.raises(BadRequest, match=r"method 'transform': the model has predict, predict_proba, predict_class"):
        asked(found, COLUMNS, method="transform")


def test_a_booster_of_its_own(tmp_path: Path):
    """What `xgb.train` made answers probabilities for predict, as Booster.predict does, and classes for predict_class."""
    model = trained("two", "binary:logistic")
    found = opened(saved(model, tmp_path), labels=["no", "yes"])
    values = model.predict(xgb.DMatrix(ROWS, nthread=1))
    np.testing.assert_array_equal(asked(found, ROWS)["predict"], values)
    named = [b"yes" if value > 0.5 else b"no" for value in values]
    assert asked(found, ROWS, method="predict_class")["predict_class"].tolist() == named
    assert found.labels["predict_proba"] == ("no", "yes")


def test_softmax(tmp_path: Path):
    """A booster that answers classes answers probabilities too."""
    model = trained("three", "multi:softmax", num_class=3)
    found = opened(saved(model, tmp_path))
    np.testing.assert_array_equal(asked(found, ROWS)["predict"], model.predict(xgb.DMatrix(ROWS, nthread=1)))
    sums = asked(found, ROWS, method="predict_proba")["predict_proba"].sum(axis=1)
    np.testing.assert_allclose(sums, 1, rtol=1e-6)


def test_several_targets(tmp_path: Path):
    """A column a target."""
    model = xgb.XGBRegressor(n_estimators=2, n_jobs=1).fit(SEEN, np.c_[TRUTH["values"], TRUTH["two"]])
    found = opened(saved(model, tmp_path))
    assert found.outputs is not None
    assert found.outputs[0].shape == (-1, 2)
    np.testing.assert_array_equal(asked(found, ROWS)["predict"], model.predict(ROWS))


def test_several_labels(tmp_path: Path):
    """Whether each label holds."""
    model = xgb.XGBClassifier(n_estimators=2, n_jobs=1).fit(SEEN, np.c_[TRUTH["two"], 1 - TRUTH["two"]])
    found = opened(saved(model, tmp_path))
    np.testing.assert_array_equal(asked(found, ROWS)["predict"], model.predict(ROWS))
    answer = asked(found, ROWS, method="predict_proba")["predict_proba"]
    np.testing.assert_array_equal(answer, model.predict_proba(ROWS))


def test_early_stopping(tmp_path: Path):
    """The classifier stops at its best iteration, as it does in Python."""
    model = xgb.XGBClassifier(n_estimators=40, n_jobs=1, early_stopping_rounds=2, eval_metric="logloss")
    model.fit(SEEN, TRUTH["two"], eval_set=[(ROWS, [1, 0, 1])], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    answer = asked(opened(saved(model, tmp_path), method="predict_proba"), ROWS)["predict_proba"]
    np.testing.assert_array_equal(answer, model.predict_proba(ROWS))


def test_missing_values(tmp_path: Path):
    """null and NaN are missing values, and so is the number that `missing` names."""
    model = fitted("values", frame())
    path = saved(model, tmp_path)
    holes = np.where(ROWS == 0.25, np.nan, ROWS)
    expected = model.predict(frame(holes))
    np.testing.assert_array_equal(asked(opened(path), holes)["predict"], expected)
    nulls = {
        name: np.array([None if np.isnan(x) else x for x in column], object)
        for name, column in zip(NAMES, holes.T, strict=True)
    }
    np.testing.assert_array_equal(asked(opened(path), nulls)["predict"], expected)
    numbered = np.where(np.isnan(holes), -999, holes)
    np.testing.assert_array_equal(asked(opened(path, missing=-999), numbered)["predict"], expected)


def test_columns_are_checked(tmp_path: Path):
    """Columns come by their names in any order; an unknown one, a missing one and a text are named."""
    model = fitted("values", frame())
    found = opened(saved(model, tmp_path))
    turned = dict(reversed(COLUMNS.items()))
    np.testing.assert_array_equal(asked(found, turned)["predict"], model.predict(frame(ROWS)))
    with pytest.raises(BadRequest, match=r"missing column 'sepal width'"):
        asked(found, {name: COLUMNS[name] for name in NAMES if name != "sepal width"})
    with pytest.raises(BadRequest, match=r"unexpected column 'colour'"):
        asked(found, COLUMNS | {"colour": ROWS[:, 0]})
    with pytest.raises(BadRequest, match=r"column 'sepal width' has the value 'wide', which is no number"):
        asked(found, COLUMNS | {"sepal width": np.array(["wide", "wide", "wide"], object)})
    with pytest.raises(BadRequest, match=r"rows of 3 columns are needed"):
        asked(found, ROWS[:, :2])


def test_categories_are_refused(tmp_path: Path):
    """A model that wants categories is not loaded, and they are named."""
    seen = frame().assign(colour=pd.Categorical(np.where(SEEN[:, 1] > 0.5, "red", "blue")))
    model = fitted("values", seen, enable_categorical=True)
    with pytest.raises(ModelLoadError, match=r"categorical features \(colour\), which are not served without code"):
        opened(saved(model, tmp_path))


def test_the_old_binary_format(tmp_path: Path):
    """It is known, and how to get out of it is said."""
    path = tmp_path / "model.bst"
    name, kind = b"binary:logistic", b"gbtree"
    path.write_bytes(
        bytes(136) + len(name).to_bytes(8, "little") + name + len(kind).to_bytes(8, "little") + kind + bytes(900)
    )
    assert recognise(path).runtime == "xgboost"
    with pytest.raises(
        ModelLoadError, match=r"old binary format, which XGBoost .* does not read: load it with XGBoost before 3.1"
    ):
        opened(path)


@pytest.mark.parametrize("name", ["model.json", "model.ubj"])
def test_a_damaged_file(tmp_path: Path, name: str):
    """What is wrong is said in a line, with both versions."""
    path = saved(fitted("values", frame()), tmp_path, name)
    path.write_bytes(path.read_bytes().replace(b"gradient_booster", b"gradient_b00ster"))
    with pytest.raises(ModelLoadError) as told:
        opened(path)
    text = str(told.value)
    assert f"cannot be loaded by XGBoost {xgb.__version__}" in text
    assert f"this file was written by XGBoost {xgb.__version__}" in text
    assert "Stack trace" not in text


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "transform"}, r"method 'transform' is none of predict, predict_proba, predict_class"),
        ({"labels": "a"}, r"labels \['a'\] do not fit; the model has 2 classes"),
        ({"threads": 0}, r"threads 0 is no number of threads"),
        ({"missing": "none"}, r"missing 'none' is no number"),
    ],
)
def test_parameters_are_checked(tmp_path: Path, parameters: dict[str, Any], message: str):
    """A parameter with a value that cannot be is refused when it loads."""
    with pytest.raises(ModelLoadError, match=message):
        opened(saved(fitted("two", frame()), tmp_path), **parameters)


def test_threads(tmp_path: Path):
    """The budget's threads, whatever the file says."""
    path = saved(trained("values", "reg:squarederror", nthread=3), tmp_path)
    model = xgboost.open_(path, Options(threads=2))
    assert model.facts.endswith("2 threads")
    booster = xgboost._loaded(xgb, path, 2)
    assert json.loads(booster.save_config())["learner"]["generic_param"]["nthread"] == "2"

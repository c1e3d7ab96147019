"""The CatBoost runtime beyond its cases: methods, categories, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np
import pytest

from frameworks.cases.catboost import COLOURS, COLUMNS, ROWS, SEEN, TRUTH, categories, fitted, frame
from prefork.errors import BadRequest, ModelLoadError
from prefork.payload import Kind, Payload
from prefork.runtimes import catboost
from prefork.runtimes.recognition import recognise
from prefork.runtimes.runtime import Opened, Options

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]


def opened(path: Path, **parameters: Any) -> Opened:
    return catboost.open_(path, Options(parameters=parameters))


def asked(model: Opened, value: Any, **parameters: Any) -> dict[str, Any]:
    kind = {dict: Kind.TENSORS, list: Kind.JSON}.get(type(value), Kind.TENSOR)
    return dict(model.run(model.takes.gather(Payload(kind, value)), parameters))


def saved(model: Any, folder: Path) -> Path:
    model.save_model(folder / "model.cbm")
    return folder / "model.cbm"


def test_a_requests_method(tmp_path: Path):
    """A classifier answers its classes by their names, probabilities, or the formula's values."""
    model = fitted("two", frame())
    path = saved(model, tmp_path)
    assert recognise(path).runtime == "catboost"
    found = opened(path)
    assert [name.decode() for name in asked(found, COLUMNS)["predict"]] == model.predict(frame(ROWS)).tolist()
    for method, kind in (("predict_proba", "Probability"), ("decision_function", "RawFormulaVal")):
        answer = asked(found, COLUMNS, method=method)[method]
        np.testing.assert_array_equal(answer, model.predict(frame(ROWS), prediction_type=kind))
    assert found.labels["predict_proba"] == ("no", "yes")
    with pytest.raises(BadRequest, match=r"method 'x': the model has predict, predict_proba, decision_function"):
        asked(found, COLUMNS, method="x")


def test_categories_from_rows(tmp_path: Path):
    """Rows of numbers and words in the columns' order are taken too; a fraction is no category."""
    path, expected = categories(tmp_path)
    found = opened(path, method="predict_proba")
    assert [spec.datatype for spec in found.takes.described()] == ["FP64", "FP64", "FP64", "BYTES"]
    rows = [[*row, colour.decode()] for row, colour in zip(ROWS.tolist(), COLOURS["colour"], strict=True)]
    np.testing.assert_array_equal(asked(found, rows)["predict_proba"], expected["predict_proba"])
    with pytest.raises(BadRequest, match=r"column 'colour' has the datatype FP64; text \(BYTES\) is needed"):
        asked(found, COLUMNS | {"colour": ROWS[:, 0]})


def test_categories_that_are_numbers(tmp_path: Path):
    """A whole number and its text are the same category, also where a matrix has made it a float."""
    seen = frame().assign(size=(SEEN[:, 1] * 4).astype(int))
    model = fitted("two", seen, cat_features=["size"])
    found = opened(saved(model, tmp_path), method="predict_proba")
    sizes = np.array([1, 3, 2])
    expected = model.predict_proba(frame(ROWS).assign(size=sizes))
    assert len({*expected[:, 0].tolist()}) > 1
    for given in (sizes, sizes.astype(float), np.array(["1", "3", "2"], object)):
        np.testing.assert_array_equal(asked(found, COLUMNS | {"size": given})["predict_proba"], expected)
    np.testing.assert_array_equal(asked(found, np.c_[ROWS, sizes])["predict_proba"], expected)


def test_missing_values(tmp_path: Path):
    """NaN is a missing value."""
    model = fitted("values", frame())
    holes = np.where(ROWS == 0.25, np.nan, ROWS)
    np.testing.assert_array_equal(asked(opened(saved(model, tmp_path)), holes)["predict"], model.predict(frame(holes)))


@pytest.mark.parametrize("loss", ["Poisson", "RMSEWithUncertainty", "MultiRMSE"])
def test_what_a_regressor_answers_depends_on_its_loss(tmp_path: Path, loss: str):
    """As CatBoostRegressor.predict."""
    truth = np.c_[TRUTH["values"], SEEN[:, 0]] if loss == "MultiRMSE" else TRUTH["values"]
    model = cb.CatBoostRegressor(iterations=3, thread_count=1, verbose=0, allow_writing_files=False, loss_function=loss)
    model.fit(SEEN, truth)
    np.testing.assert_array_equal(asked(opened(saved(model, tmp_path)), ROWS)["predict"], model.predict(ROWS))


def test_a_damaged_file(tmp_path: Path):
    """CatBoost's reason is passed on, with its version."""
    path = saved(fitted("values", frame()), tmp_path)
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(ModelLoadError, match=rf"cannot be loaded by CatBoost {cb.__version__}: "):
        opened(path)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "predict_proba"}, r"method 'predict_proba' is none of predict"),
        ({"threads": True}, r"threads True is no number of threads"),
    ],
)
def test_parameters_are_checked(tmp_path: Path, parameters: dict[str, Any], message: str):
    """A parameter with a value that cannot be is refused when it loads."""
    with pytest.raises(ModelLoadError, match=message):
        opened(saved(fitted("values", frame()), tmp_path), **parameters)

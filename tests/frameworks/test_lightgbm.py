"""The LightGBM runtime beyond its cases: methods, names with spaces, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from frameworks.cases.lightgbm import COLUMNS, NAMES, ROWS, SEEN, TRUTH, fitted, frame
from prefork.errors import BadRequest, ModelLoadError
from prefork.payload import Kind, Payload
from prefork.runtimes import lightgbm
from prefork.runtimes.recognition import recognise
from prefork.runtimes.runtime import Opened, Options

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]


def opened(path: Path, **parameters: Any) -> Opened:
    return lightgbm.open_(path, Options(parameters=parameters))


def asked(model: Opened, value: Any, names: list[str] | None = None, **parameters: Any) -> dict[str, Any]:
    kind = Kind.TENSORS if isinstance(value, dict) else Kind.TENSOR
    return dict(model.run(model.takes.gather(Payload(kind, value, names=names)), parameters))


def saved(model: Any, folder: Path) -> Path:
    model.booster_.save_model(folder / "model.txt")
    return folder / "model.txt"


def test_a_requests_method(tmp_path: Path):
    """predict is the booster's; predict_proba and predict_class are LGBMClassifier's."""
    model = fitted("three", frame())
    path = saved(model, tmp_path)
    assert recognise(path).runtime == "lightgbm"
    found = opened(path)
    np.testing.assert_array_equal(asked(found, COLUMNS)["predict"], model.booster_.predict(ROWS))
    answer = asked(found, COLUMNS, method="predict_proba")["predict_proba"]
    np.testing.assert_array_equal(answer, model.predict_proba(frame(ROWS)))
    answer = asked(found, COLUMNS, method="predict_class")["predict_class"]
    np.testing.assert_array_equal(answer, model.predict(frame(ROWS)))
    with pytest.raises(BadRequest, match=r"method 'x': the model has predict, predict_proba, predict_class"):
        asked(found, COLUMNS, method="x")


def test_labels(tmp_path: Path):
    """The parameter gives the classes the names that the file has lost."""
    model = fitted("two", frame())
    found = opened(saved(model, tmp_path), labels=["no", "yes"], method="predict_class")
    assert [name.decode() for name in asked(found, COLUMNS)["predict_class"]] == model.predict(frame(ROWS)).tolist()
    assert found.labels == {"predict_proba": ("no", "yes")}


def test_names_with_spaces(tmp_path: Path):
    """LightGBM writes them with underlines; a request may have either, in any order."""
    model = fitted("values", frame())
    found = opened(saved(model, tmp_path))
    expected = model.predict(frame(ROWS))
    spaced = {name.replace("_", " "): column for name, column in reversed(COLUMNS.items())}
    np.testing.assert_array_equal(asked(found, spaced)["predict"], expected)
    np.testing.assert_array_equal(asked(found, ROWS[:, ::-1], list(spaced))["predict"], expected)
    np.testing.assert_array_equal(asked(found, ROWS)["predict"], expected)
    with pytest.raises(BadRequest, match="a column comes twice"):
        asked(found, {"sepal length": ROWS[:, 0], **COLUMNS})
    with pytest.raises(BadRequest, match=r"missing column 'petal_length'; the model takes " + ", ".join(NAMES)):
        asked(found, {"sepal length": ROWS[:, 0], "sepal width": ROWS[:, 1]})


def test_missing_values(tmp_path: Path):
    """NaN is a missing value."""
    model = fitted("values", frame())
    holes = np.where(ROWS == 0.25, np.nan, ROWS)
    np.testing.assert_array_equal(asked(opened(saved(model, tmp_path)), holes)["predict"], model.predict(frame(holes)))


@pytest.mark.parametrize(("truth", "shape"), [("two", (0,)), ("three", (0, 3))])
def test_no_rows(tmp_path: Path, truth: str, shape: tuple[int, ...]):
    """No rows are answered by none, in the declared shape."""
    found = opened(saved(fitted(truth, frame()), tmp_path))
    assert asked(found, ROWS[:0])["predict"].shape == shape


def test_a_file_that_is_cut_off(tmp_path: Path):
    """It is refused before LightGBM sees it, which would end the process."""
    path = saved(fitted("values", frame()), tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"end of trees") - 50])
    with pytest.raises(ModelLoadError, match="is cut off"):
        opened(path)


def test_a_file_of_another_kind(tmp_path: Path):
    """LightGBM's reason is passed on, with its version."""
    path = tmp_path / "model.txt"
    path.write_text("forest\nversion=v9\nTree=0\nend of trees\n")
    with pytest.raises(ModelLoadError, match=rf"cannot be loaded by LightGBM {lgb.__version__}: .*the format v9"):
        opened(path)


def test_categories_are_refused(tmp_path: Path):
    """A model that wants a data frame's categories is not loaded."""
    seen = frame().assign(colour=pd.Categorical(np.where(SEEN[:, 1] > 0.5, "red", "blue")))
    with pytest.raises(
        ModelLoadError, match="trained on a data frame with categories, which are not served without code"
    ):
        opened(saved(fitted("values", seen), tmp_path))


def test_categories_that_are_numbers(tmp_path: Path):
    """They are served as the numbers that they are."""
    seen = np.c_[SEEN, (SEEN[:, 1] * 4).astype(int)]
    model = lgb.LGBMRegressor(n_estimators=3, min_child_samples=3, n_jobs=1, verbose=-1)
    model.fit(seen, TRUTH["values"], categorical_feature=[3])
    rows = np.c_[ROWS, [0, 3, 1]]
    np.testing.assert_array_equal(asked(opened(saved(model, tmp_path)), rows)["predict"], model.predict(rows))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "predict_proba"}, r"method 'predict_proba' is none of predict"),
        ({"labels": "a,b"}, r"the model has no classes"),
        ({"threads": "two"}, r"threads 'two' is no number of threads"),
    ],
)
def test_parameters_are_checked(tmp_path: Path, parameters: dict[str, Any], message: str):
    """A parameter with a value that cannot be is refused when it loads."""
    with pytest.raises(ModelLoadError, match=message):
        opened(saved(fitted("values", frame()), tmp_path), **parameters)

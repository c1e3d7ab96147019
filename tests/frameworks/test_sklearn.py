"""scikit-learn's models: which method answers, what the inputs and outputs look like, and what is refused and why."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import skops.io
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC
from xgboost import XGBClassifier

from prefork.errors import BadRequest, ModelFailed, ModelLoadError
from prefork.payload import Kind, Payload, TensorSpec
from prefork.runtimes import sklearn as runtime
from prefork.runtimes.recognition import recognise
from prefork.runtimes.runtime import Options
from prefork.runtimes.saved import Saved

pytestmark = pytest.mark.frameworks

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
ROWS = X[:4]
PEOPLE = pd.DataFrame({"age": [30.0, 40, 50, 60], "city": ["Oslo", "Rome", "Oslo", "Bern"]})
HERE = sklearn.__version__
OLD = "1" + HERE[1:].replace(HERE[2], "0", 1)
"""A version of as many letters."""


def saved(model: Any, path: Path, **parameters: Any) -> Saved:
    """The model pickled, and opened by the runtime that recognises it."""
    path.write_bytes(pickle.dumps(model))
    return opened(path, **parameters)


def opened(path: Path, **parameters: Any) -> Saved:
    found = recognise(path)
    assert found.runtime == "sklearn"
    model = Saved("sklearn", path, Options(parameters=parameters))
    model.load()
    return model


def ask(model: Saved, value: Any = ROWS, **parameters: Any) -> dict[str, np.ndarray]:
    kind = Kind.TENSORS if isinstance(value, dict) else Kind.TENSOR
    return model.predict(Payload(kind, value, parameters=parameters)).value


def refusal(path: Path, **parameters: Any) -> str:
    with pytest.raises(ModelLoadError) as raised:
        runtime.open_(path, Options(parameters=parameters))
    return str(raised.value)


# --- methods


def test_a_request_chooses_its_method(tmp_path):
    """By the parameter `method`; the answer is called as it."""
    model = LogisticRegression().fit(X, Y)
    served = saved(model, tmp_path / "m")
    for method in ("predict", "predict_proba", "decision_function", "predict_log_proba"):
        np.testing.assert_array_equal(ask(served, method=method)[method], getattr(model, method)(ROWS))
    with pytest.raises(BadRequest, match="method 'transform': the model has predict, predict_proba, decision_function"):
        ask(served, method="transform")


def test_the_default_method_is_a_parameter(tmp_path):
    """One name, or a list of which the first that there is answers; none of them is an error that says what there is."""
    path = tmp_path / "m"
    assert list(ask(saved(LogisticRegression().fit(X, Y), path, method="predict_proba"))) == ["predict_proba"]
    wanted = ["predict_proba", "predict"]
    assert list(ask(saved(LinearRegression().fit(X, Y), path, method=wanted))) == ["predict"]
    assert "method 'predict_proba': LinearRegression has predict" in refusal(path, method="predict_proba")


def test_what_cannot_be_asked_is_refused(tmp_path):
    """An object of scikit-learn without any of the methods."""
    path = tmp_path / "m"
    path.write_bytes(pickle.dumps(sklearn.utils.Bunch(a=1)))
    assert "holds a Bunch, which has none of predict, " in refusal(path)


# --- outputs


@pytest.mark.parametrize(
    ("model", "target", "outputs"),
    [
        (LogisticRegression(), Y, TensorSpec("INT64", (-1,), "predict")),
        (LogisticRegression(), np.array(["a", "b"])[Y], TensorSpec("BYTES", (-1,), "predict")),
        (KNeighborsClassifier(2), Y.astype(bool), TensorSpec("BOOL", (-1,), "predict")),
        (KNeighborsClassifier(2), np.stack([Y, 1 - Y], 1), TensorSpec("INT64", (-1, 2), "predict")),
        (KMeans(2, n_init=1), Y, TensorSpec("INT32", (-1,), "predict")),
        (IsolationForest(n_estimators=5), Y, TensorSpec("INT64", (-1,), "predict")),
        (StandardScaler(), Y, TensorSpec("FP64", (-1, 3), "transform")),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore:Could not find the number of physical cores")
def test_outputs_are_as_a_row_is_answered(tmp_path, model, target, outputs):
    """Datatype and shape in the metadata are those of the answers."""
    model.fit(X, target)
    served = saved(model, tmp_path / "m")
    assert served.predict.outputs == (outputs,)
    (array,) = ask(served).values()
    assert outputs.accepts(array.shape)


def test_classes_are_labels(tmp_path):
    """Of outputs with one column a class; they are the names of Seldon's columns."""
    served = saved(LogisticRegression().fit(X, np.array(["no", "yes"])[Y]), tmp_path / "m")
    answer = served.predict(Payload(Kind.TENSOR, ROWS, parameters={"method": "predict_proba"}))
    assert answer.names == ["no", "yes"]
    assert set(ask(served)["predict"].tolist()) <= {b"no", b"yes"}


def test_several_targets_have_probabilities_each(tmp_path):
    """One output a target, each with its own classes."""
    model = MultiOutputClassifier(LogisticRegression()).fit(X, np.stack([Y, Y + 5], 1))
    served = saved(model, tmp_path / "m", method="predict_proba")
    found = ask(served)
    expected = model.predict_proba(ROWS)
    assert list(found) == ["predict_proba_0", "predict_proba_1"]
    np.testing.assert_array_equal(found["predict_proba_1"], expected[1])
    assert served.predict.labels["predict_proba_1"] == ("5", "6")
    assert [spec.shape for spec in served.predict.outputs] == [(-1, 2), (-1, 2)]


def test_a_sparse_answer_is_a_whole_matrix(tmp_path):
    """No protocol has sparse tensors."""
    model = CountVectorizer().fit(["a bee", "bee sea"])
    found = ask(saved(model, tmp_path / "m"), {"input": np.array([b"sea bee bee"], object)})
    np.testing.assert_array_equal(found["transform"], [[2, 1]])


# --- inputs


def test_texts_are_one_input(tmp_path):
    """Of bytes in UTF-8; the example is a text."""
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(["gut", "schön"], [0, 1])
    served = saved(model, tmp_path / "m")
    assert served.predict.takes.described() == (TensorSpec("BYTES", (-1,), "input"),)
    assert ask(served, {"input": np.array(["schön".encode()], object)})["predict"].tolist() == [1]
    assert len(served.predict(served.example).value["predict"]) == 1


@pytest.mark.parametrize(
    "encoder",
    [
        ColumnTransformer([("c", OneHotEncoder(), ["city"]), ("n", "passthrough", ["age"])]),
        ColumnTransformer([("c", OneHotEncoder(), [1]), ("n", "passthrough", [0])]),
        ColumnTransformer([("c", OneHotEncoder(), [False, True]), ("n", "passthrough", slice(0, 1))]),
        ColumnTransformer(
            [("c", make_pipeline(OrdinalEncoder(), StandardScaler()), ["city"])], remainder="passthrough"
        ),
        ColumnTransformer([("c", CountVectorizer(), "city"), ("n", "passthrough", ["age"])]),
    ],
)
def test_columns_of_texts_are_known_by_their_encoders(tmp_path, encoder):
    """However their columns are named; the others are numbers, and numbers are no texts."""
    model = make_pipeline(encoder, LogisticRegression()).fit(PEOPLE, [0, 1, 0, 1])
    served = saved(model, tmp_path / "m")
    assert [spec.datatype for spec in served.predict.takes.described()] == ["FP64", "BYTES"]
    given = {"city": np.array([b"Rome", b"Oslo"], object), "age": np.array([41, 29])}
    expected = model.predict(pd.DataFrame({"age": [41, 29], "city": ["Rome", "Oslo"]}))
    np.testing.assert_array_equal(ask(served, given)["predict"], expected)
    assert len(served.predict(served.example).value["predict"]) == 1
    with pytest.raises(BadRequest, match="column 'city' has the datatype INT64; text"):
        ask(served, {"age": np.array([1.0]), "city": np.array([3])})
    with pytest.raises(BadRequest, match=r"\(of columns with texts: 'age'\): could not convert string to float: 'old'"):
        ask(served, {"age": np.array([b"old"], object), "city": np.array([b"Rome"], object)})


def test_a_mixed_matrix_without_names_is_taken(tmp_path):
    """One that was fitted on an array of objects."""
    encoder = ColumnTransformer([("c", OneHotEncoder(), [1])], remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression()).fit(PEOPLE.to_numpy(), [0, 1, 0, 1])
    served = saved(model, tmp_path / "m")
    rows = np.array([[41.0, "Rome"]], object)
    np.testing.assert_array_equal(ask(served, rows)["predict"], model.predict(rows))
    assert served.predict.outputs == (TensorSpec("INT64", (-1,), "predict"),)


def test_a_search_is_its_best_estimator(tmp_path):
    """What it was fitted on is told by the pipeline inside."""
    pipeline = make_pipeline(
        ColumnTransformer([("c", OneHotEncoder(handle_unknown="ignore"), ["city"])]), LogisticRegression()
    )
    model = GridSearchCV(pipeline, {"logisticregression__C": [1.0]}, cv=2).fit(PEOPLE, [0, 1, 0, 1])
    served = saved(model, tmp_path / "m")
    assert [spec.datatype for spec in served.predict.takes.described()] == ["FP64", "BYTES"]


def test_values_that_the_model_refuses_are_the_clients(tmp_path):
    """An unknown category, and no number where one is needed: 400 with scikit-learn's words."""
    served = saved(
        make_pipeline(OneHotEncoder(), LogisticRegression()).fit(PEOPLE[["city"]], [0, 1, 0, 1]), tmp_path / "m"
    )
    with pytest.raises(BadRequest, match="does not take these values: Found unknown categories"):
        ask(served, {"city": np.array([b"Paris"], object)})
    scaled = saved(LinearRegression().fit(X, Y), tmp_path / "n")
    with pytest.raises(BadRequest, match="NaN"):
        ask(scaled, np.full((1, 3), np.nan))


# --- files


@pytest.mark.parametrize("compress", [0, 3, ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3), ("zlib", 3)])
def test_every_compression_of_joblib_is_read(tmp_path, compress):
    """Under a name that says nothing."""
    model = RandomForestClassifier(3, random_state=0).fit(X, Y)
    joblib.dump(model, tmp_path / "m", compress=compress)
    np.testing.assert_array_equal(ask(opened(tmp_path / "m"))["predict"], model.predict(ROWS))


@pytest.mark.parametrize(
    "model",
    [
        XGBClassifier(n_estimators=3),
        LGBMClassifier(n_estimators=3, verbose=-1),
        RandomForestClassifier(3),
        HistGradientBoostingClassifier(max_iter=3),
        CalibratedClassifierCV(SVC()),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("is_skops", [False, True])
@pytest.mark.filterwarnings(
    "ignore:Could not find the number of physical cores", "ignore:X does not have valid feature names"
)
def test_what_has_scikit_learns_interface_is_served(tmp_path, model, is_skops):
    """Pickled, and in a skops archive without a word of trust, as their classes are of packages that are known."""
    model.fit(X, Y)
    path = tmp_path / "m"
    path.write_bytes(skops.io.dumps(model) if is_skops else pickle.dumps(model))
    np.testing.assert_array_equal(ask(opened(path), method="predict_proba")["predict_proba"], model.predict_proba(ROWS))


def test_skops_does_not_load_what_is_not_trusted(tmp_path):
    """Functions are named, also those that a module of scikit-learn imports for itself; `trusted` lets them in."""
    model = make_pipeline(FunctionTransformer(os.path.basename), StandardScaler())
    skops.io.dump(model, tmp_path / "m")
    assert "types that are not trusted: posixpath.basename; name them in the parameter `trusted`" in refusal(
        tmp_path / "m"
    )
    opened(tmp_path / "m", trusted="posixpath.basename")
    assert not runtime._is_trusted("sklearn.datasets._base.urlretrieve")
    assert not runtime._is_trusted("sklearn.utils.Bunch")  # its own place is another
    assert runtime._is_trusted("sklearn.tree._tree.Tree")


def test_a_damaged_file_is_said_to_be(tmp_path):
    """Cut off in the middle: the path, and what was wrong."""
    data = pickle.dumps(LogisticRegression().fit(X, Y))
    (tmp_path / "m").write_bytes(data[:-50])
    assert f"{tmp_path / 'm'} cannot be read" in refusal(tmp_path / "m")


def test_a_pickle_that_everybody_can_write_is_not_read(tmp_path):
    """Unless that is allowed; a skops archive runs no code."""
    path = tmp_path / "m"
    path.write_bytes(pickle.dumps(LogisticRegression().fit(X, Y)))
    path.chmod(0o666)
    assert f"everybody can write {path}" in refusal(path)
    runtime.open_(path, Options(allow_pickle=True))
    path.write_bytes(skops.io.dumps(LogisticRegression().fit(X, Y)))
    runtime.open_(path, Options())


# --- versions


def doctored(path: Path, old: bytes = HERE.encode(), new: bytes = OLD.encode()) -> Path:
    """The file as if another version had written it."""
    data = path.read_bytes()
    assert old in data
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new))
    return path


@pytest.mark.parametrize("compress", [0, 3])
def test_a_file_of_another_version_that_cannot_be_read_names_both(tmp_path, compress):
    """A module that was renamed since is the commonest of them."""
    joblib.dump(LogisticRegression().fit(X, Y), tmp_path / "m")
    doctored(doctored(tmp_path / "m"), b"_logistic", b"_logistik")
    if compress:
        import zlib

        (tmp_path / "m").write_bytes(zlib.compress((tmp_path / "m").read_bytes()))
    said = refusal(tmp_path / "m")
    assert "No module named 'sklearn.linear_model._logistik'" in said
    assert said.endswith(f"this file was written by scikit-learn {OLD}, here is {HERE}")


@pytest.mark.parametrize("is_skops", [False, True])
def test_a_file_of_another_version_that_can_be_read_is_one_line_of_warning(tmp_path, caplog, is_skops):
    """However many estimators are inside."""
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    path = tmp_path / "m"
    path.write_bytes(pickle.dumps(model))
    if is_skops:
        import zipfile

        schema = skops.io.dumps(model)
        (tmp_path / "s").write_bytes(schema)
        with zipfile.ZipFile(tmp_path / "s") as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name).replace(HERE.encode(), OLD.encode()))
    else:
        doctored(path)
    with caplog.at_level(logging.WARNING, "prefork"):
        served = opened(path)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"m: this file was written by scikit-learn {OLD}, here is {HERE}")
    np.testing.assert_array_equal(ask(served)["predict"], model.predict(ROWS))


def test_a_file_of_another_version_that_fails_later_names_both(tmp_path):
    """What an older version did not save is missed when it is asked; the answer says why."""
    model = LogisticRegression().fit(X, Y)
    model.lost_ = None
    del model.coef_
    (tmp_path / "m").write_bytes(pickle.dumps(model))
    doctored(tmp_path / "m")
    served = opened(tmp_path / "m")
    with pytest.raises(ModelFailed, match=f"'coef_'; this file was written by scikit-learn {OLD}, here is {HERE}"):
        ask(served)


# --- classes of other packages


def made_elsewhere(folder: Path, module: str) -> Path:
    """A pipeline with a class of a module that only the process that pickled it had."""
    source = """
        import sys, pickle
        from sklearn.base import BaseEstimator, TransformerMixin
        from sklearn.pipeline import make_pipeline
        from sklearn.linear_model import LinearRegression
        class Cleaner(TransformerMixin, BaseEstimator):
            def fit(self, X, y=None): return self
            def transform(self, X): return X
    """
    (folder / "cleaning.py").write_text(textwrap.dedent(source))
    start = "from cleaning import *" if module == "cleaning" else textwrap.dedent(source)
    code = f"{start}\nmodel = make_pipeline(Cleaner(), LinearRegression()).fit([[1.0], [2.0]], [1, 2])\n"
    code += "open('m.pkl', 'wb').write(pickle.dumps(model))"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    return folder / "m.pkl"


def test_a_missing_module_is_named(tmp_path):
    """And where it has to be."""
    path = made_elsewhere(tmp_path, "cleaning")
    said = refusal(path)
    assert "needs the module 'cleaning', which is not here; install it, or put its folder on PYTHONPATH" in said


def test_a_class_of_a_script_is_said_to_be(tmp_path):
    """What was defined in a notebook cannot be found by anybody else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = refusal(made_elsewhere(tmp_path, "__main__"))
    assert "the class was defined in a script or notebook: move it into a module and save the model again" in said

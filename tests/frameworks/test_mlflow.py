"""MLflow's folders: what the signature says, what comes out, and what is refused and why."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from frameworks.cases.mlflow import infer_signature, mlflow
from prefork.errors import BadAnswer, BadRequest, ModelLoadError
from prefork.payload import Kind, Payload, TensorSpec
from prefork.runtimes import mlflow as runtime
from prefork.runtimes.recognition import recognise
from prefork.runtimes.runtime import Options
from prefork.runtimes.saved import Saved

pytestmark = [
    pytest.mark.frameworks,
    # What MLflow tells who saves a model.
    pytest.mark.filterwarnings(
        "ignore::UserWarning:mlflow", "ignore::FutureWarning:mlflow", "ignore:Operation with range"
    ),
]

cloudpickle.register_pickle_by_value(sys.modules[__name__])

TABLE = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]})


def python_model(answer: Any) -> Any:
    """A model of a user's class whose predict is `answer(input, params)`."""

    class Model(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):
            return answer(model_input, params)

    return Model()


def saved(folder: Path, answer: Any, given: Any = None, **more: Any) -> Path:
    """Such a model, with the signature of `given`, if there is one."""
    if given is not None:
        more["signature"] = infer_signature(given, params=more.pop("params", None))
    mlflow.pyfunc.save_model(folder / "m", python_model=python_model(answer), **more)
    return folder / "m"


def opened(path: Path, **options: Any) -> Saved:
    found = recognise(path)
    assert found.runtime == "mlflow"
    model = Saved("mlflow", path, Options(**options))
    model.load()
    return model


def ask(model: Saved, value: Any, **parameters: Any) -> dict[str, np.ndarray]:
    kind = Kind.TENSORS if isinstance(value, dict) else Kind.TENSOR
    return model.predict(Payload(kind, value, parameters=parameters)).value


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(ModelLoadError) as raised:
        runtime.open_(path, Options(**options))
    return str(raised.value)


# --- in


def test_columns_have_the_signatures_types(tmp_path):
    """The metadata is the signature's; what fits without a loss is converted, anything else is a 400 that names the column."""
    given = pd.DataFrame(
        {"n": [1, 2], "i": np.array([1, 2], "i4"), "f": np.array([1, 2], "f4"), "s": ["x", "y"], "t": [True, False]}
    )
    path = saved(tmp_path, lambda table, params: {name: [str(table[name].dtype)] for name in table}, given)
    model = opened(path)
    assert [(spec.name, spec.datatype) for spec in model.predict.takes.described()] == [
        ("n", "INT64"),
        ("i", "INT32"),
        ("f", "FP32"),
        ("s", "BYTES"),
        ("t", "BOOL"),
    ]
    columns = {
        "s": np.array([b"x"], object),
        "t": np.array([True]),
        "f": np.array([0.5]),
        "n": np.array([3.0]),
        "i": np.array([4]),
    }
    found = {name: array.tolist()[0] for name, array in ask(model, columns).items()}
    assert (found["n"], found["i"], found["f"], found["t"]) == (b"int64", b"int32", b"float32", b"bool")
    with pytest.raises(BadRequest, match="column 'n' has the datatype FP64 and values that do not fit INT64"):
        ask(model, {**columns, "n": np.array([0.5])})
    with pytest.raises(BadRequest, match="column 's' has the datatype INT64; text"):
        ask(model, {**columns, "s": np.array([1])})
    with pytest.raises(BadRequest, match="missing column 'n'"):
        ask(model, {name: array for name, array in columns.items() if name != "n"})


def test_dates_and_bytes_are_columns_too(tmp_path):
    """Dates come as texts, and bytes as they are."""
    given = pd.DataFrame({"when": pd.to_datetime(["2026-01-01"]), "blob": [b"\x00"]})
    path = saved(tmp_path, lambda table, params: {"year": table["when"].dt.year, "size": table["blob"].map(len)}, given)
    model = opened(path)
    found = ask(model, {"when": np.array([b"2025-05-06"], object), "blob": np.array(["é".encode()], object)})
    assert {name: array.tolist() for name, array in found.items()} == {"year": [2025], "size": [2]}
    with pytest.raises(BadRequest, match="column 'when' has a value that is no date"):
        ask(model, {"when": np.array([b"soon"], object), "blob": np.array([b""], object)})


def test_a_column_may_be_optional(tmp_path):
    """As the signature says."""
    schema = mlflow.types.Schema(
        [mlflow.types.ColSpec("double", "a"), mlflow.types.ColSpec("double", "b", required=False)]
    )
    signature = mlflow.models.ModelSignature(inputs=schema)
    path = saved(tmp_path, lambda table, params: table["a"] * len(table.columns), signature=signature)
    model = opened(path)
    assert [spec.optional for spec in model.predict.takes.described()] == [False, True]
    assert ask(model, {"a": np.array([2.0])})["predictions"].tolist() == [2.0]
    assert ask(model, {"a": np.array([2.0]), "b": np.array([0.0])})["predictions"].tolist() == [4.0]


def test_columns_without_names_are_taken_in_order(tmp_path):
    """A matrix of the signature's width."""
    schema = mlflow.types.Schema([mlflow.types.ColSpec("double"), mlflow.types.ColSpec("double")])
    path = saved(
        tmp_path, lambda table, params: table.sum(axis=1), signature=mlflow.models.ModelSignature(inputs=schema)
    )
    model = opened(path)
    assert model.predict.takes.described() == (TensorSpec("FP64", (-1, 2), "input"),)
    assert ask(model, np.array([[1, 2], [3, 4]]))["predictions"].tolist() == [3.0, 7.0]
    with pytest.raises(BadRequest, match="rows of 2 columns"):
        ask(model, np.ones((1, 3)))


def test_one_tensor_without_a_name_is_an_array(tmp_path):
    """In the signature's datatype and shape."""
    path = saved(tmp_path, lambda array, params: array * 2, np.zeros((1, 3), "f4"))
    model = opened(path)
    assert model.predict.takes.described() == (TensorSpec("FP32", (-1, 3), "input"),)
    found = ask(model, np.ones((2, 3)))["predictions"]
    assert (found.dtype, found.tolist()) == (np.float32, [[2.0] * 3] * 2)


def test_texts_may_be_tensors(tmp_path):
    """A model of text tensors gets texts."""
    path = saved(tmp_path, lambda given, params: np.char.upper(given["t"]), {"t": np.array(["ab", "c"])})
    assert ask(opened(path), {"t": np.array([b"xy", b"z"], object)})["predictions"].tolist() == [b"XY", b"Z"]


def test_params_are_the_requests_parameters(tmp_path):
    """Those that the signature has, with its defaults; of a wrong type they are a 400, and others mean nothing."""
    model = opened(saved(tmp_path, lambda table, params: table["a"] * params["k"], TABLE, params={"k": 2}))
    columns = {name: TABLE[name].to_numpy() for name in TABLE}
    assert ask(model, columns)["predictions"].tolist() == [2.0, 4.0]
    assert ask(model, columns, k=5, other=1)["predictions"].tolist() == [5.0, 10.0]
    with pytest.raises(BadRequest, match="does not take these values"):
        ask(model, columns, k="many")


def test_without_a_signature_names_make_a_data_frame(tmp_path):
    """What has no names is an array."""
    model = opened(saved(tmp_path, lambda given, params: [type(given).__name__]))
    assert model.predict.takes.described() == ()
    assert model.example is None
    assert ask(model, np.ones((1, 2)))["predictions"].tolist() == [b"ndarray"]
    assert ask(model, {"a": np.ones(2), "b": np.ones((2, 1))})["predictions"].tolist() == [b"DataFrame"]
    named = Payload(Kind.TENSOR, np.ones((1, 2)), names=["a", "b"])
    assert model.predict(named).value["predictions"].tolist() == [b"DataFrame"]
    with pytest.raises(BadRequest, match=r"the columns make no table, each must be \[n\] or \[n,1\]: a \[2\], b \[3\]"):
        ask(model, {"a": np.ones(2), "b": np.ones(3)})


def test_the_input_example_is_the_example(tmp_path):
    """Of a data frame and of an array, with params or without."""
    model = opened(
        saved(
            tmp_path,
            lambda table, params: table["a"] * params["k"],
            TABLE,
            params={"k": 2},
            input_example=(TABLE, {"k": 3}),
        )
    )
    assert {name: array.tolist() for name, array in model.example.value.items()} == TABLE.to_dict("list")
    assert model.predict(model.example).value["predictions"].tolist() == [2.0, 4.0]
    array = np.ones((2, 3), "f4")
    other = opened(saved(tmp_path / "other", lambda array, params: array, array, input_example=array))
    np.testing.assert_array_equal(other.predict(other.example).value["predictions"], array)


# --- out


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda table, params: table, {"a": [1.0, 2.0], "b": [3.0, 5.0]}),
        (lambda table, params: table["a"], {"predictions": [1.0, 2.0]}),
        (lambda table, params: table.to_numpy(), {"predictions": [[1.0, 3.0], [2.0, 5.0]]}),
        (lambda table, params: ["x", "é"], {"predictions": [b"x", "é".encode()]}),
        (lambda table, params: {"n": 3, "t": ["x"]}, {"n": [3], "t": [b"x"]}),
        (lambda table, params: pd.to_datetime(["2026-01-02"]), {"predictions": [b"2026-01-02T00:00:00.000000"]}),
    ],
)
def test_every_form_of_an_answer_is_outputs(tmp_path, answer, expected):
    """A data frame's columns and a dict's values by their names, anything else as `predictions`."""
    model = opened(saved(tmp_path, answer, TABLE))
    found = ask(model, {name: TABLE[name].to_numpy() for name in TABLE})
    assert {name: array.tolist() for name, array in found.items()} == expected


def test_an_answer_of_objects_is_the_models_mistake(tmp_path):
    """No protocol has tensors of them."""
    model = opened(saved(tmp_path, lambda table, params: [{"a": 1}], TABLE))
    with pytest.raises(BadAnswer, match="the output 'predictions' holds a dict"):
        ask(model, {name: TABLE[name].to_numpy() for name in TABLE})


def test_what_a_users_class_raises_is_not_the_clients_mistake(tmp_path):
    """A ValueError of its own code goes through; of a library's flavour it is about the values."""

    def failing(table, params):
        raise ValueError("mine")

    model = opened(saved(tmp_path, failing, TABLE))
    with pytest.raises(ValueError, match="mine"):
        ask(model, {name: TABLE[name].to_numpy() for name in TABLE})
    mlflow.sklearn.save_model(LinearRegression().fit(TABLE, [1, 2]), tmp_path / "flavour")
    with pytest.raises(BadRequest, match="does not take these values"):
        ask(opened(tmp_path / "flavour"), {"a": np.array([np.nan]), "b": np.array([1.0])})


# --- loading


def test_other_packages_than_are_here_are_one_line(tmp_path, caplog):
    """Each that differs with what is here."""
    path = saved(tmp_path, lambda table, params: table, TABLE)
    (path / "requirements.txt").write_text(
        "numpy==1.0\nno-such-thing>=2\nmlflow>=2\npandas\n# a comment\n-r other.txt\n"
    )
    with caplog.at_level(logging.WARNING, "prefork"):
        opened(path)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "prefork"]
    assert line == (
        f"m was saved with other packages than are here: numpy==1.0 (here {np.__version__}), no-such-thing>=2 (not installed)"
    )


def test_a_module_that_is_missing_is_named(tmp_path):
    """And where it says what to install."""
    path = saved(tmp_path, lambda table, params: table, TABLE)
    text = (path / "MLmodel").read_text()
    (path / "MLmodel").write_text(text.replace("loader_module: mlflow.pyfunc.model", "loader_module: no_such_loader"))
    assert (
        "needs the module 'no_such_loader', which is not here; its requirements.txt names what to install"
        in refusal(path)
    )


def test_a_folder_that_everybody_can_write_is_not_loaded(tmp_path):
    """A model of MLflow is code, whatever is in it, unless that is allowed."""
    path = saved(tmp_path, lambda table, params: table, TABLE)
    (path / "MLmodel").chmod(0o666)
    assert (
        f"is an MLflow model, which runs code when it is read, and everybody can write {path / 'MLmodel'}"
        in refusal(path)
    )
    runtime.open_(path, Options(allow_pickle=True))


def test_lists_and_objects_in_a_signature_are_refused(tmp_path):
    """No column or tensor can be one; the message says what to write instead."""
    schema = mlflow.types.Schema([mlflow.types.ColSpec(mlflow.types.schema.Array("double"), "history")])
    path = saved(tmp_path, lambda table, params: table, signature=mlflow.models.ModelSignature(inputs=schema))
    assert "the signature's input 'history' is of the type array, which no column or tensor can be" in refusal(path)


def test_the_models_own_configuration_is_a_parameter(tmp_path):
    """`model_config` goes over the one that it was saved with."""

    class Configured(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):
            return [context.model_config["k"]]

    mlflow.pyfunc.save_model(tmp_path / "m", python_model=Configured(), model_config={"k": 1})
    assert ask(opened(tmp_path / "m"), np.ones(1))["predictions"].tolist() == [1]
    assert ask(opened(tmp_path / "m", parameters={"model_config": {"k": 2}}), np.ones(1))["predictions"].tolist() == [2]

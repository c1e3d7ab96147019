"""Folders of other servers: MLServer's settings, Seldon's s2i sources and prepackaged servers, MLflow's description."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from prefork import target
from prefork.errors import ModelLoadError, RepositoryError
from prefork.payload import TensorSpec
from prefork.repository.repository import Repository
from prefork.runtimes import mlmodel, prepackaged
from prefork.runtimes.layouts import LAYOUTS
from prefork.runtimes.recognition import recognise
from prefork.runtimes.shelf import known
from prefork.settings import load
from saved_files import ESTIMATOR, ONNX, mlflow, mlserver, s2i

SKLEARN = "mlserver_sklearn.SKLearnModel"


def refusal(path: Path) -> str:
    with pytest.raises(ModelLoadError) as raised:
        recognise(path, layouts=LAYOUTS)
    return str(raised.value)


# --- MLServer


@pytest.mark.parametrize("implementation", [SKLEARN, "mlserver_sklearn.sklearn.SKLearnModel"])
def test_mlserver_settings_name_the_model(tmp_path, implementation):
    """Name, file, version and parameters are theirs; `predict_fn` is our `method`."""
    parameters = {"uri": "./iris.bin", "version": "v3", "extra": {"predict_fn": "predict_proba"}}
    folder = mlserver(tmp_path / "m", name="iris", implementation=implementation, parameters=parameters)
    (folder / "iris.bin").write_bytes(ESTIMATOR)
    found = recognise(folder, layouts=LAYOUTS)
    assert (found.runtime, found.path, found.name, found.version) == ("sklearn", folder / "iris.bin", "iris", "v3")
    assert found.parameters == {"method": "predict_proba"}


def test_mlserver_settings_without_a_uri_mean_their_folder(tmp_path):
    """The one model of the implementation's kind in it."""
    folder = mlserver(tmp_path / "m", implementation=SKLEARN, max_batch_size=10)
    (folder / "a.pkl").write_bytes(ESTIMATOR)
    (folder / "b.onnx").write_bytes(ONNX)
    assert recognise(folder, layouts=LAYOUTS).path.name == "a.pkl"


@pytest.mark.parametrize(
    ("implementation", "runtime"),
    [
        ("mlserver_xgboost.XGBoostModel", "xgboost"),
        ("mlserver_lightgbm.LightGBMModel", "lightgbm"),
        ("mlserver_catboost.CatboostModel", "catboost"),
        ("mlserver_mlflow.MLflowRuntime", "mlflow"),
        ("mlserver_onnx.OnnxModel", "onnx"),
    ],
)
def test_mlserver_runtimes_have_ours_in_their_place(tmp_path, implementation, runtime):
    """Each implementation for saved models is served by the runtime of the same files."""
    (tmp_path / "saved").touch()
    uri = f"file://{tmp_path}/saved"
    folder = mlserver(tmp_path / "m", implementation=implementation, parameters={"uri": uri})
    assert recognise(folder, layouts=LAYOUTS).runtime == runtime


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"implementation": "mine.Model"}, "the implementation 'mine.Model' is unknown here"),
        ({"implementation": "mlserver_huggingface.HuggingFaceRuntime"}, "is unknown here; those of mlserver_sklearn"),
        ({"name": "x"}, "implementation"),
        ({"implementation": SKLEARN, "parameters": {"uri": "gone"}}, "parameters.uri 'gone': there is no"),
        ({"implementation": SKLEARN, "parameters": {"uri": "s3://b/m"}}, "parameters.uri 's3://b/m' is elsewhere"),
        ({"implementation": SKLEARN, "parameters": {"uri": 3}}, "$.parameters.uri"),
    ],
)
def test_mlserver_settings_that_cannot_be_meant_are_refused(tmp_path, settings, words):
    """The file and the key are named."""
    said = refusal(mlserver(tmp_path / "m", **settings))
    assert words in said
    assert "model-settings.json" in said


# --- Seldon


def test_an_s2i_folder_names_its_class(tmp_path):
    """MODEL_NAME is the class; everything else there is the image's environment."""
    text = "# Seldon\n\nMODEL_NAME=pkg.Iris\nAPI_TYPE=REST\nSERVICE_TYPE = MODEL\nPERSISTENCE=0\n"
    found = recognise(s2i(tmp_path / "m", text), layouts=LAYOUTS)
    assert (found.class_, found.path, found.runtime) == ("pkg.Iris", tmp_path / "m", "")


def test_an_s2i_folder_without_a_class_is_refused(tmp_path):
    """The variable is named."""
    assert "MODEL_NAME is needed" in refusal(s2i(tmp_path / "m", "API_TYPE=REST\n"))


def test_an_s2i_folder_is_served_by_its_class(tmp_path):
    """`prefork serve ./folder` is `prefork serve Iris` with that folder to import from."""
    settings = target.settled(load({"model": str(s2i(tmp_path / "m", "MODEL_NAME=Iris\n"))}, {}))
    assert (settings.model, settings.model_dir, settings.runtime) == ("Iris", str(tmp_path / "m"), "")


def test_parameters_of_prepackaged_servers_are_understood():
    """`model_uri` is the path that is served already; Seldon's server for scikit-learn answers probabilities by default."""
    uri = {"model_uri": "/mnt/models"}
    assert prepackaged.translated("sklearn", uri) == {"method": ["predict_proba", "predict"]}
    assert prepackaged.translated("sklearn", {**uri, "method": "predict"}) == {"method": "predict"}
    assert prepackaged.translated("mlflow", {**uri, "xtype": "DataFrame"}) == {}
    assert prepackaged.translated("xgboost", {**uri, "threads": 2}) == {"threads": 2}
    assert prepackaged.translated("sklearn", {"method": "transform"}) == {"method": "transform"}


def test_a_prepackaged_server_is_served_with_the_operators_variables(tmp_path):
    """The folder with `model.joblib`, and PREDICTIVE_UNIT_PARAMETERS as the operator sets it."""
    (tmp_path / "model.joblib").write_bytes(ESTIMATOR)
    said = json.dumps([{"name": "model_uri", "value": str(tmp_path), "type": "STRING"}])
    settings = target.settled(load({"model": str(tmp_path)}, {"PREDICTIVE_UNIT_PARAMETERS": said}))
    assert settings.runtime == "sklearn"
    assert settings.parameters == {"method": ["predict_proba", "predict"]}


# --- MLflow


def _signed(folder: Path, inputs: list[object], **more: object) -> mlmodel.MLmodel:
    mlflow(folder)
    signature = {"inputs": json.dumps(inputs), "outputs": None, "params": json.dumps(more.pop("params", None))}
    said = {"flavors": {"python_function": {"loader_module": "x"}}, "signature": signature, **more}
    (folder / "MLmodel").write_text(json.dumps(said))  # JSON is YAML, too
    return mlmodel.read(folder)


def test_a_signatures_columns_and_tensors_are_read(tmp_path):
    """Without MLflow: names, datatypes, shapes, what may be left out, and the names of params."""
    columns = [{"type": "double", "name": "a", "required": True}, {"type": "string", "name": "b", "required": False}]
    model = _signed(tmp_path / "c", columns, params=[{"name": "k", "default": 1, "type": "long", "shape": None}])
    assert [port.spec for port in model.inputs] == [
        TensorSpec("FP64", (-1,), "a"),
        TensorSpec("BYTES", (-1,), "b", optional=True),
    ]
    assert model.params == {"k"}
    tensor = {"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 3]}}
    assert _signed(tmp_path / "t", [tensor]).inputs[0].spec == TensorSpec("FP32", (-1, 3), "")


def test_an_input_example_is_read(tmp_path):
    """A data frame's columns have the signature's datatypes; what is of another form is no example."""
    info = {"artifact_path": "example.json", "type": "dataframe", "pandas_orient": "split"}
    columns = [{"type": "double", "name": "a"}, {"type": "long", "name": "b"}]
    model = _signed(tmp_path, columns, saved_input_example_info=info)
    assert mlmodel.example(model) is None
    (tmp_path / "example.json").write_text(json.dumps({"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}))
    found = mlmodel.example(model)
    assert {name: array.dtype.str for name, array in found.items()} == {"a": "<f8", "b": "<i8"}
    np.testing.assert_array_equal(found["b"], [2, 4])
    (tmp_path / "example.json").write_text('{"data": 1}')
    assert mlmodel.example(model) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flavors:\n  spark: {}\n", "the flavour python_function is needed; it has spark"),
        ("flavors: {python_function: {}}\nsignature: {inputs: 'nonsense'}\n", "cannot be understood: JSONDecodeError"),
        ("flavors: [unclosed\n", "cannot be understood: ParserError"),
    ],
)
def test_an_mlmodel_that_cannot_be_meant_is_refused(tmp_path, text, words):
    """The file and what is wrong with it are named."""
    (tmp_path / "MLmodel").write_text(text)
    with pytest.raises(ModelLoadError) as raised:
        mlmodel.read(tmp_path)
    assert words in str(raised.value)
    assert str(tmp_path / "MLmodel") in str(raised.value)


# --- in a repository


def _found(repository: Path, name: str):
    return next(iter(Repository([str(repository)], known()).find(name).versions.values())).config


def test_a_repository_mixes_kinds(tmp_path):
    """A class, files and folders; each version's config says what it is."""
    (tmp_path / "code" / "1").mkdir(parents=True)
    (tmp_path / "code" / "1" / "model.py").write_text("class Model:\n    def predict(self, X, names): ...\n")
    (tmp_path / "net" / "1").mkdir(parents=True)
    (tmp_path / "net" / "1" / "weights.onnx").write_bytes(ONNX)
    mlflow(tmp_path / "flow" / "2")
    (tmp_path / "flow" / "2" / "model.py").write_text("# MLflow puts a model's own code here\n")
    folder = mlserver(
        tmp_path / "served", implementation=SKLEARN, parameters={"uri": "m", "extra": {"predict_fn": "transform"}}
    )
    (folder / "m").write_bytes(ESTIMATOR)
    (s2i(tmp_path / "built", "MODEL_NAME=Iris\n") / "Iris.py").write_text("class Iris: ...")
    assert _found(tmp_path, "code").class_ == "model:Model"
    assert (_found(tmp_path, "net").runtime, _found(tmp_path, "net").file) == ("onnx", "weights.onnx")
    assert (_found(tmp_path, "flow").runtime, _found(tmp_path, "flow").file) == ("mlflow", "")
    served = _found(tmp_path, "served")
    assert (served.runtime, served.file, served.parameters) == ("sklearn", "m", {"method": "transform"})
    assert _found(tmp_path, "built").class_ == "Iris:Iris"


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        (lambda folder: [(folder / name).write_bytes(ONNX) for name in "ab"], "any of a, b could be meant"),
        (lambda folder: mlserver(folder, implementation="mine.Model"), "'mine.Model' is unknown here"),
        (lambda folder: (s2i(folder, "MODEL_NAME=Gone\n") / "iris.txt").touch(), "there is no module 'Gone'"),
        (lambda folder: (folder / "notes.txt").write_text("x"), "there is nothing to serve"),
    ],
)
def test_what_a_repository_cannot_serve_is_said(tmp_path, fill, words):
    """The reason is the model's own state, and no process is started."""
    (tmp_path / "m").mkdir()
    fill(tmp_path / "m")
    with pytest.raises(RepositoryError, match=words):
        Repository([str(tmp_path)], known()).find("m")

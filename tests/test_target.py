"""What MODEL means: a class or a saved model, and what follows from that."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from prefork import target
from prefork.errors import ModelLoadError
from prefork.settings import load
from running import launched

ROWS = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])


def settled(**given: Any) -> Any:
    return target.settled(load(given, environ={}))


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A classifier in the working directory."""
    monkeypatch.chdir(tmp_path)
    joblib.dump(LogisticRegression().fit(ROWS, ["no", "yes", "yes"]), "iris.joblib")
    return tmp_path / "iris.joblib"


def test_a_file_is_a_saved_model(saved: Path):
    """Its runtime is found by its content, its name is the file's, its host the runtime's, and a note says why."""
    found = settled(model="iris.joblib")
    assert (found.model, found.runtime, found.name, found.host) == (str(saved), "sklearn", "iris", "worker")
    assert found.notes[-1] == (
        "iris.joblib is a model of the kind sklearn; host: worker, as it survives a fork and gives its memory back"
    )


def test_what_is_said_wins(saved: Path):
    """A name and a host that are given stay."""
    found = settled(model="./iris.joblib", name="mine", host="process")
    assert (found.name, found.host, found.runtime) == ("mine", "process", "sklearn")


def test_devices_need_a_process(saved: Path):
    """Each device is a process's own, so a model that asks for some gets processes; unless it is said otherwise."""
    assert settled(model="iris.joblib", devices=("0",)).host == "process"
    assert settled(model="iris.joblib", devices=("0",), host="worker").host == "worker"


def test_a_folder_is_its_model(saved: Path):
    """A folder with one saved model is that model, under the folder's name; `model_dir` alone means the same, as KServe says it."""
    folder = saved.parent / "forest"
    folder.mkdir()
    saved.rename(folder / "model.joblib")
    for given in ({"model": "forest"}, {"model": f"file://{folder}"}, {"model_dir": str(folder)}):
        found = settled(**given)
        assert (found.model, found.name) == (str(folder / "model.joblib"), "forest")


def test_code_is_a_class(saved: Path):
    """A module, and a package, win over a folder and a file of the same name."""
    (saved.parent / "Iris.py").write_text("class Iris: ...")
    (saved.parent / "Iris").mkdir()
    (saved.parent / "pkg").mkdir()
    (saved.parent / "pkg" / "__init__.py").write_text("")
    for name in ("Iris", "pkg", "pkg.module:Class", "nothing"):
        found = settled(model=name)
        assert (found.model, found.runtime) == (name, "")


MISTAKES = [
    ({"model": "./nothing.onnx"}, "there is no nothing.onnx"),
    ({"model": "./code.py"}, "that is Python code; serve a class by its name, as in `prefork serve code`"),
    ({"model": "empty/"}, "no saved model is in this folder (it has nothing)"),
    ({"model": "iris.joblib", "runtime": "nosuch"}, "there is no runtime 'nosuch'; there are"),
    ({"model": "ftp://host/a"}, "ftp"),
]


@pytest.mark.parametrize(("given", "said"), MISTAKES)
def test_what_cannot_be_served(saved: Path, given: dict[str, str], said: str):
    """A path without a model is an error in words, before anything starts."""
    (saved.parent / "code.py").write_text("")
    (saved.parent / "empty").mkdir()
    with pytest.raises(ModelLoadError, match=re.escape(said)):
        settled(**given)


@pytest.mark.parametrize("host", ["worker", "process"])
def test_a_saved_model_is_served(saved: Path, host: str):
    """`prefork serve iris.joblib` answers in both hosts, by the method that the request asks for, with the classes as names."""
    with launched(saved.parent, "iris.joblib", "--host", host, "--workers", "1") as running, running.client() as client:
        assert client.post("/v1/models/iris:predict", json={"instances": ROWS.tolist()}).json() == {
            "predictions": ["no", "yes", "yes"]
        }
        body = {
            "parameters": {"method": "predict_proba"},
            "inputs": [{"name": "input", "shape": [3, 2], "datatype": "FP64", "data": ROWS.tolist()}],
        }
        (output,) = client.post("/v2/models/iris/infer", json=body).json()["outputs"]
        expected = joblib.load(saved).predict_proba(ROWS)
        assert (output["name"], output["shape"]) == ("predict_proba", [3, 2])
        np.testing.assert_array_equal(np.array(output["data"]).reshape(3, 2), expected)
        table = {"dataframe_split": {"data": ROWS.tolist()}}
        assert client.post("/invocations", json=table).json() == {"predictions": ["no", "yes", "yes"]}
        assert "is a model of the kind sklearn; host:" in running.log


def test_the_method_of_every_answer(saved: Path):
    """The parameter `method` sets it for all, and Seldon's answer has the classes as names."""
    method = json.dumps([{"name": "method", "type": "STRING", "value": "predict_proba"}])
    with launched(saved.parent, "iris.joblib", "--workers", "1", "--parameters", method) as running:
        with running.client() as client:
            answer = client.post("/api/v1.0/predictions", json={"data": {"ndarray": ROWS.tolist()}}).json()
        assert answer["data"]["names"] == ["no", "yes"]
        assert np.shape(answer["data"]["ndarray"]) == (3, 2)

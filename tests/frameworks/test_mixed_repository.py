"""A repository of several kinds of models: each in versions, each replaced without a gap, under one port."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

import httpx
import joblib
import mlflow.sklearn
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LinearRegression

from repositories import add, ask, index, load, number, repository_server, unload

pytestmark = pytest.mark.frameworks

CLASS = """
class Model:
    def predict(self, X, names=None):
        return [[{number}]]
"""


def linear(value: float) -> LinearRegression:
    """Answers `value` times what it is given."""
    return LinearRegression().fit(np.array([[0.0], [1.0]]), np.array([0.0, value]))


def graph(path: Path, value: float) -> None:
    factor = numpy_helper.from_array(np.array([float(value)]), "k")
    port = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["rows", 1]) for name in "xy"]
    made = helper.make_graph([helper.make_node("Mul", ["x", "k"], ["y"])], "g", port[:1], port[1:], [factor])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def version(repository: Path, kind: str, at: int) -> None:
    """Version `at` of the model called by its kind, which answers `at` to 1; it appears whole."""
    if kind == "code":
        add(repository, kind, CLASS.format(number=at), version=at)
        return
    new = repository / kind / f".new{at}"
    new.parent.mkdir(parents=True, exist_ok=True)
    if kind == "flow":
        mlflow.sklearn.save_model(linear(at), new, serialization_format="cloudpickle")
    else:
        new.mkdir()
        graph(new / "weights", at) if kind == "net" else joblib.dump(linear(at), new / "iris.joblib")
    new.rename(repository / kind / str(at))


KINDS = ("code", "net", "forest", "flow")


class Asking:
    """Asks a model over and over, until it is told to stop; counts what is no answer."""

    def __init__(self, url: str, name: str) -> None:
        self.failures: list[str] = []
        self.numbers: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url, name))

    def _run(self, url: str, name: str) -> None:
        with httpx.Client(base_url=url, timeout=30) as client:
            while not self._stop.is_set():
                answer = ask(client, name)
                if answer.status_code == 200:
                    self.numbers.add(round(answer.json()["outputs"][0]["data"][0]))
                else:
                    self.failures.append(answer.text)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.filterwarnings("default")
def test_a_repository_of_every_kind_is_served_and_reloaded(tmp_path):
    """A class, an ONNX file, a joblib file and an MLflow folder: all answer, and a new version of each takes over without a refusal."""
    repository = tmp_path / "models"
    for kind in KINDS:
        version(repository, kind, 2)
    (repository / "net" / "model.yaml").write_text("host: auto\n")  # in a repository that is a process of its own
    (repository / "forest" / "model.yaml").write_text("runtime: sklearn\nversions: all\n")
    version(repository, "forest", 1)
    with repository_server(tmp_path, "--control", "explicit", "--load-model", "*") as server, server.client() as client:
        assert {kind: round(_value(ask(client, kind))) for kind in KINDS} == dict.fromkeys(KINDS, 2)
        assert number_of(client, "forest/versions/1") == 1
        assert client.get("/v2/models/net").json()["platform"] == "onnxruntime_onnx"
        for kind in KINDS:
            with Asking(server.url, kind) as asking:
                version(repository, kind, 3)
                answer = load(client, kind)
                assert answer.status_code == 200, answer.text
                assert number_of(client, kind) == 3
            assert asking.failures == []
            assert asking.numbers <= {2, 3}
        assert {each for each in index(client) if each.startswith("forest/")} == {f"forest/{at}" for at in (1, 2, 3)}
        assert unload(client, "flow").status_code == 200
        assert ask(client, "flow").status_code in {400, 404}


def _value(answer: httpx.Response) -> float:
    number(answer)
    return float(answer.json()["outputs"][0]["data"][0])


def number_of(client: httpx.Client, path: str) -> int:
    return round(_value(ask(client, path)))

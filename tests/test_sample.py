"""A model's own example as JSON values: which become a sample, and what is told over HTTP of it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from prefork import TensorSpec
from prefork.model import Model
from prefork.model.sample import payload, sample
from prefork.payload import Sample
from prefork.testing import Client

MATRIX = (TensorSpec("FP32", (-1, 2), "x"),)
COLUMNS = (TensorSpec("INT64", (-1,), "age"), TensorSpec("BYTES", (-1, 1), "city"))
OPTIONAL = (TensorSpec("FP64", (1,), "a"), TensorSpec("FP64", (1,), "b", optional=True))


def made(said: Any, inputs: tuple[TensorSpec, ...] | None = None) -> Sample | None:
    return sample(payload(said, named=inputs is not None), inputs)


def tensor(name: str, shape: list[int], datatype: str, data: list) -> dict:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


@pytest.mark.parametrize(
    ("said", "inputs", "expected"),
    [
        ([[1, 2]], None, [tensor("X", [1, 2], "INT64", [1, 2])]),
        (np.ones((1, 1), "f2"), None, [tensor("X", [1, 1], "FP16", [1.0])]),
        (np.float64(2), None, [tensor("X", [1], "FP64", [2.0])]),
        (["a", "ö"], None, [tensor("X", [2], "BYTES", ["a", "ö"])]),
        ([[1.0, 2.0]], MATRIX, [tensor("x", [1, 2], "FP32", [1.0, 2.0])]),
        ({"x": [[1, 2]]}, MATRIX, [tensor("x", [1, 2], "FP32", [1.0, 2.0])]),
        (
            pd.DataFrame({"age": [41], "city": ["Ulm"]}),
            None,
            [tensor("age", [1], "INT64", [41]), tensor("city", [1], "BYTES", ["Ulm"])],
        ),
        (
            {"age": [41.0], "city": ["Ulm"]},
            COLUMNS,
            [tensor("age", [1], "INT64", [41]), tensor("city", [1, 1], "BYTES", ["Ulm"])],
        ),
        (
            np.array([[41, "Ulm"]], object),
            COLUMNS,
            [tensor("age", [1], "INT64", [41]), tensor("city", [1, 1], "BYTES", ["Ulm"])],
        ),
        ({"a": 1}, OPTIONAL, [tensor("a", [1], "FP64", [1.0])]),
        ("text", (TensorSpec("BYTES", (1,), "t"),), [tensor("t", [1], "BYTES", ["text"])]),
    ],
)
def test_tensors_become_v2s_inputs(said, inputs, expected):
    """Arrays, data frames and values by name are V2's inputs, in the names, datatypes and shapes that the model declares."""
    assert made(said, inputs) == Sample(tuple(expected))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("text", {"strData": "text"}),
        (b"\x00\x01", {"binData": "AAE="}),
        ({"a": [1]}, {"jsonData": {"a": [1]}}),
        ({"a": (1, {2})}, {"jsonData": {"a": [1, [2]]}}),
        ([[1], [2, 3]], {"jsonData": [[1], [2, 3]]}),
    ],
)
def test_what_is_no_tensor_stays_a_message(said, message):
    """Text, bytes and JSON of a class without named inputs are Seldon's message."""
    assert made(said) == Sample(message=message)


@pytest.mark.parametrize(
    ("said", "inputs"),
    [
        ([[float("nan"), 1.0]], None),
        (np.array(["2026-01-01"], "M8[D]"), None),
        (np.array([b"\xff"], object), None),
        (np.array([None, 1], object), None),
        ({"a": object()}, None),
        ("x" * 100_000, None),
        ([[0.5, 1.5]], (TensorSpec("INT64", (-1, 2), "x"),)),
        ([[1.0, 2.0, 3.0]], MATRIX),
        ({"y": [1.0]}, MATRIX),
        ({"b": [1.0]}, OPTIONAL),
        ([[1, 2, 3]], COLUMNS),
    ],
)
def test_what_cannot_be_shown_is_no_sample(said, inputs):
    """What JSON cannot say, what is too long, and what does not fit the declared inputs is not shown."""
    assert made(said, inputs) is None


def test_of_a_large_example_one_row_is_shown():
    """A table with more than a few thousand elements is shown by its first row; a row of so many not at all."""
    found = made(np.arange(10_000).reshape(2500, 4))
    assert found is not None
    assert found.inputs == (tensor("X", [1, 4], "INT64", [0, 1, 2, 3]),)
    assert made(np.zeros((2, 10_000))) is None


class Typed:
    example: ClassVar = {"rows": [[1.0, 2.0]]}

    def predict(self, rows: Annotated[np.ndarray, TensorSpec("FP32", (-1, 2))]) -> np.ndarray:
        return rows


class Failing:
    def example(self):
        raise RuntimeError("no data")

    def predict(self, X, names):
        return X


def test_a_model_shows_its_example():
    """What a class gives as its example stands in its description and not in the spec that requests are checked against."""
    model = Model(Typed(), "m")
    assert model.described.example == made({"rows": [[1.0, 2.0]]}, model.spec.inputs)
    assert model.spec.example is None


def test_an_example_that_fails_is_told_once(caplog):
    """An `example()` that raises does not keep a model from being served; the log says so."""
    model = Model(Failing(), "m")
    assert model.described.example is None
    assert model.described.example is None
    assert caplog.messages == ["m: its example is not shown: RuntimeError: no data"]


def test_the_example_over_http():
    """`/v2/models/NAME/example` has paths, bodies and lines for the address that was asked; the try-it begins with the same body."""
    client = Client(Typed)
    told = client.get("/v2/models/Typed/example").json()
    body = {"inputs": [tensor("rows", [1, 2], "FP32", [1.0, 2.0])]}
    assert told["v2"] == {"path": "/v2/models/Typed/infer", "body": body}
    assert told["seldon"] == {"path": "/predict", "body": {"data": {"ndarray": [[1.0, 2.0]]}}}
    assert told["v1"] == {"path": "/v1/models/Typed:predict", "body": {"instances": [[1.0, 2.0]]}}
    host = client.base_url.netloc.decode()
    assert told["curl"]["v2"].startswith(f"curl -s http://{host}/v2/models/Typed/infer -d ")
    assert client.post(told["v2"]["path"], json=told["v2"]["body"]).json()["outputs"][0]["data"] == [1.0, 2.0]
    documented = client.get("/openapi.json").json()["paths"]["/v2/models/{model}/infer"]["post"]["requestBody"]
    assert documented["content"]["application/json"]["example"] == body


def test_the_example_of_a_version():
    """The example of a version asks that version; one that is not there is 404."""
    client = Client(Typed)
    told = client.get("/v2/models/Typed/versions/1/example").json()
    assert told["v2"]["path"] == "/v2/models/Typed/versions/1/infer"
    assert told["seldon"] is not None
    assert client.get("/v2/models/Typed/versions/2/example").status_code == 404
    assert client.get("/v2/models/Other/example").status_code == 404

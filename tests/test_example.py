"""The request that a model is tried with before there is any: where it comes from, and what becomes of it."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest

from prefork import TensorSpec
from prefork.model import Model
from prefork.model.example import example
from prefork.payload import Kind


class Plain:
    def predict(self, X, names):
        return X


class Named:
    def predict(self, rows: np.ndarray, limit: float = 0.5):
        return rows


def with_example(cls: type, value: Any) -> Model:
    return Model(type(cls.__name__, (cls,), {"example": value})(), "m")


@pytest.mark.parametrize(
    ("cls", "value", "kind", "expected"),
    [
        (Plain, np.ones((1, 2)), Kind.TENSOR, np.ones((1, 2))),
        (Plain, [[1.0, 2.0]], Kind.TENSOR, np.array([[1.0, 2.0]])),
        (Plain, lambda _self: [[1, 2]], Kind.TENSOR, np.array([[1, 2]])),
        (Plain, ["a", "b"], Kind.TENSOR, np.array(["a", "b"])),
        (Plain, {"a": 1}, Kind.JSON, {"a": 1}),
        (Plain, [{"a": 1}], Kind.JSON, [{"a": 1}]),
        (Plain, [[1], [2, 3]], Kind.JSON, [[1], [2, 3]]),
        (Plain, "text", Kind.TEXT, "text"),
        (Plain, b"\x00", Kind.BYTES, b"\x00"),
        (Named, {"rows": [1.0]}, Kind.TENSORS, {"rows": np.array([1.0])}),
        (Named, [1.0], Kind.TENSOR, np.array([1.0])),
    ],
)
def test_the_classes_own_example(cls, value, kind, expected):
    """An attribute or a method: an array, a JSON value, text, bytes, or a named class's inputs by name."""
    request, source = example(with_example(cls, value))
    assert (request.kind, request.method, source) == (kind, "predict", "the class's example")
    np.testing.assert_equal(request.value, expected)


def test_a_data_frame_keeps_its_columns():
    """Their names go with the rows."""
    request, _ = example(with_example(Plain, pd.DataFrame({"a": [1.0], "b": [2.0]})))
    assert (request.kind, request.names) == (Kind.TENSOR, ["a", "b"])
    assert request.value.tolist() == [[1.0, 2.0]]


def test_zeros_for_what_a_signature_says():
    """Each input that is required, as a tensor of its datatype; any number is one; what has a default is left out."""

    class Shaped:
        def predict(
            self,
            rows: Annotated[np.ndarray, TensorSpec("FP32", (-1, 4))],
            word: Annotated[np.ndarray, TensorSpec("BYTES", (1,))],
            limit: float = 0.5,
        ):
            return rows

    request, source = example(Model(Shaped(), "m"))
    assert source == "zeros for what its signature says"
    assert {name: (array.dtype, array.shape) for name, array in request.value.items()} == {
        "rows": (np.dtype("f4"), (1, 4)),
        "word": (np.dtype(object), (1,)),
    }


def test_zeros_for_what_init_metadata_says():
    """One input is Seldon's X; several are its columns, by name."""

    class Described(Plain):
        ports = ({"name": "x", "datatype": "FP64", "shape": [-1, 3]},)

        def init_metadata(self):
            return {"inputs": list(self.ports)}

    request, source = example(Model(Described(), "m"))
    assert (request.kind, request.value.shape, source) == (Kind.TENSOR, (1, 3), "zeros for what init_metadata() says")
    Described.ports = tuple({"name": name, "datatype": "INT64", "shape": [1]} for name in "ab")
    request, _ = example(Model(Described(), "m"))
    assert (request.kind, set(request.value)) == (Kind.TENSORS, {"a", "b"})


@pytest.mark.parametrize(
    "user_object",
    [
        Plain(),
        Named(),
        object(),
        type("Raw", (), {"predict_raw": lambda self, message: message, "example": [[1]]})(),
        type("Other", (Plain,), {"example": lambda self, of_what: of_what})(),
    ],
    ids=["undeclared", "no shape", "no hook", "raw only", "another kind of example"],
)
def test_there_may_be_none(user_object):
    """Where nothing says what to predict with, nothing is made up; a hook that wants a whole message is not tried."""
    assert example(Model(user_object, "m")) is None


def test_a_transformer_is_tried_with_what_it_does():
    """A class without predict is tried with transform_input."""
    transformer = type("T", (), {"transform_input": lambda self, X, names: X, "example": [[1.0]]})()
    request, _ = example(Model(transformer, "m"))
    assert request.method == "transform_input"


def test_what_the_example_raises_is_raised():
    """It is the user's code, and the user is told."""

    def fail(_self):
        raise KeyError("no example")

    with pytest.raises(KeyError, match="no example"):
        example(with_example(Plain, fail))

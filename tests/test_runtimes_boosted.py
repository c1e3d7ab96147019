"""What is known of boosted trees without their libraries: whose a file is, and how classes follow from a booster's values."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefork.errors import BadRequest, ModelLoadError
from prefork.payload import TensorSpec
from prefork.runtimes.boosted import Boosted
from prefork.runtimes.recognition import recognise

LEARNER = b'{"learner":{"attributes":{},"feature_names":["a b"],"gradient_booster":{'
UBJSON = b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner{L\x00\x00\x00\x00\x00\x00\x00\x0aattributes{}"
SHORT = b"{i\x07learner{i\x0aattributes{}"
TREES = b"tree\nversion=v4\nnum_class=1\n"


def binary(head: bytes = b"") -> bytes:
    """XGBoost's format of old: an optional magic, 136 bytes of numbers, two texts after their lengths."""
    names = (b"reg:squarederror", b"gbtree")
    return head + bytes(136) + b"".join(struct.pack("<Q", len(name)) + name for name in names) + bytes(100)


@pytest.mark.parametrize(
    ("data", "runtime"),
    [
        (LEARNER, "xgboost"),
        (b'{\n  "version": [2, 1, 0],\n  "learner": {"attributes": {}}', "xgboost"),
        (UBJSON, "xgboost"),
        (SHORT, "xgboost"),
        (binary(), "xgboost"),
        (binary(b"binf"), "xgboost"),
        (TREES, "lightgbm"),
        (TREES.replace(b"\n", b"\r\n"), "lightgbm"),
        (b"CBM1\xb8\x24\x00\x00", "catboost"),
    ],
    ids=["json", "json-2", "ubjson", "ubjson-short", "binary", "binf", "lightgbm", "lightgbm-crlf", "catboost"],
)
def test_files_by_their_content(tmp_path: Path, data: bytes, runtime: str):
    """What a file is called does not matter."""
    path = tmp_path / "model"
    path.write_bytes(data)
    assert recognise(path).runtime == runtime


@pytest.mark.parametrize(
    "data",
    [
        b'{"learner":{"generic_param":{"device":"cpu"}}}',
        b'{"learning":1}',
        b'{"version":[3,2,0]}',
        b"{",
        b"tree\n",
        b"tree\nheight=3\n",
        b"CBM",
        b"CBM2....",
        binary()[:150],
        binary().replace(b"gbtree", b"gbtrex"),
    ],
)
def test_files_of_other_kinds(tmp_path: Path, data: bytes):
    """A file that only begins like one is none."""
    path = tmp_path / "model"
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match="no saved model of a known kind"):
        recognise(path)


def boosted(values: Any, classes: int, *, answers_classes: bool = False, **parameters: Any) -> Boosted:
    """Of a booster that always answers these values."""
    found = np.asarray(values, np.float32)
    return Boosted(lambda _: found, classes, parameters, "FP32", answers_classes=answers_classes)


def test_two_classes():
    """The booster's values are those of the second class; an even one is the first class."""
    model = boosted([0.25, 0.5, 0.75], 2)
    assert model(None, {})["predict"].tolist() == [0.25, 0.5, 0.75]
    assert model(None, {"method": "predict_proba"})["predict_proba"].tolist() == [
        [0.75, 0.25],
        [0.5, 0.5],
        [0.25, 0.75],
    ]
    assert model(None, {"method": "predict_class"})["predict_class"].tolist() == [0, 0, 1]
    assert model.outputs() == (TensorSpec("FP32", (-1,), "predict"),)
    assert model.labels(known=True) == {"predict_proba": ("0", "1")}
    assert model.labels(known=False) == {}


def test_three_classes():
    """The likeliest class, by its name where there is one."""
    model = boosted([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]], 3, answers_classes=True, labels=["a", "b", "c"])
    assert model(None, {})["predict"].tolist() == [b"c", b"a"]
    assert model.outputs() == (TensorSpec("BYTES", (-1,), "predict"),)
    assert model.labels(known=True) == {"predict_proba": ("a", "b", "c")}


@pytest.mark.parametrize("labels", ["no, yes", '["no", "yes"]', ["no", "yes"], ("no", "yes")])
def test_labels(labels: Any):
    """They come as a list, as its JSON, or with commas."""
    assert boosted([0.1, 0.9], 2, labels=labels).labels(known=False) == {"predict_proba": ("no", "yes")}


@pytest.mark.parametrize("labels", ["a", "[", ["a", "b", "c"], 7])
def test_labels_that_do_not_fit(labels: Any):
    """As many are needed as there are classes."""
    with pytest.raises(ModelLoadError, match="parameters: labels"):
        boosted([0.1], 2, labels=labels)


def test_a_model_of_values():
    """It has one method."""
    model = boosted([1.5], 0)
    assert model.outputs(2) == (TensorSpec("FP32", (-1, 2), "predict"),)
    with pytest.raises(BadRequest, match=r"method 'predict_proba': the model has predict"):
        model(None, {"method": "predict_proba"})

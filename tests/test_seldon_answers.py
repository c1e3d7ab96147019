"""What the body of a Seldon answer is."""

from __future__ import annotations

import json as python_json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from prefork.errors import BadAnswer, MethodNotAllowed
from prefork.payload import Kind, Payload
from prefork.protocols import seldon
from seldon_messages import (
    FEEDBACK,
    HERE,
    LONG,
    NDARRAY,
    TENSOR,
    TEXT,
    answer_of,
    answered,
    body_of,
    decode,
)
from vectors import same_json


@pytest.mark.parametrize(
    ("result", "message", "data"),
    [
        ([[1, 2]], NDARRAY, {"names": ["t:0", "t:1"], "ndarray": [[1, 2]]}),
        ([[1, 2]], TENSOR, {"names": ["t:0", "t:1"], "tensor": {"shape": [1, 2], "values": [1, 2]}}),
        ([[1, 2]], TEXT, {"names": ["t:0", "t:1"], "tensor": {"shape": [1, 2], "values": [1, 2]}}),
        ([1.5], TENSOR, {"names": [], "tensor": {"shape": [1], "values": [1.5]}}),
        ([1.5], {"data": {}}, {"names": [], "ndarray": [1.5]}),
        ([[True]], TENSOR, {"names": ["t:0"], "ndarray": [[True]]}),
        (np.ones((1, 1), ml_dtypes.bfloat16), TENSOR, {"names": ["t:0"], "tensor": {"shape": [1, 1], "values": [1.0]}}),
        ([["a"]], TENSOR, {"names": ["t:0"], "ndarray": [["a"]]}),
        ([[]], TEXT, {"names": [], "tensor": {"shape": [1, 0], "values": []}}),
        (3.5, NDARRAY, {"names": [], "ndarray": 3.5}),
        (3.5, TENSOR, {"names": [], "tensor": {"shape": [], "values": [3.5]}}),
        ([[[1], [2]]], NDARRAY, {"names": ["t:0", "t:1"], "ndarray": [[[1], [2]]]}),
        (
            np.array([[1, 2], [3, 4]]).T,
            TENSOR,
            {"names": ["t:0", "t:1"], "tensor": {"shape": [2, 2], "values": [1, 3, 2, 4]}},
        ),
    ],
)
def test_numbers_go_out_as_they_came(result, message, data):
    """Numbers are a tensor if the request was one or had no data, else lists; names are t:0, t:1, ... of two axes or more."""
    assert answered(answer_of(result), message) == {"data": data, "meta": {}}
    raw = seldon.encode(answer_of(result), decode(message, raw=True), HERE)
    assert body_of(raw) == {"data": data, "meta": {}}


@pytest.mark.parametrize(
    ("value", "message", "data"),
    [
        ([[1, "a"]], NDARRAY, {"names": ["t:0", "t:1"], "ndarray": [[1, "a"]]}),
        ([[1, 2], [3]], TENSOR, {"names": [], "ndarray": [[1, 2], [3]]}),
        ([np.zeros((1, 2)), np.zeros((1, 3))], TENSOR, {"names": [], "ndarray": [[[0.0, 0.0]], [[0.0, 0.0, 0.0]]]}),
        ([[True, 3]], NDARRAY, {"names": ["t:0", "t:1"], "ndarray": [[True, 3]]}),
        ([[True, 3]], TENSOR, {"names": ["t:0", "t:1"], "tensor": {"shape": [1, 2], "values": [1, 3]}}),
        ([[True]], TENSOR, {"names": ["t:0"], "ndarray": [[True]]}),
        (np.array([[1, 2]], dtype=object), TENSOR, {"names": ["t:0", "t:1"], "ndarray": [[1, 2]]}),
        ([], TENSOR, {"names": [], "ndarray": []}),
        ([2**70], TENSOR, {"names": [], "ndarray": [2**70]}),
        ([2**53 + 1, 0.5], TENSOR, {"names": [], "tensor": {"shape": [2], "values": [2**53 + 1, 0.5]}}),
    ],
)
def test_lists_keep_their_elements(value, message, data):
    """A list that numpy would change goes out with its own elements, by the same rules."""
    assert answered(Payload(Kind.TENSOR, value), message) == {"data": data, "meta": {}}


def test_class_names():
    """The model's names are the columns', but not of one axis."""
    assert answered(answer_of([[1]], names=["p"]), NDARRAY)["data"]["names"] == ["p"]
    assert answered(answer_of([1], names=["p"]), NDARRAY)["data"]["names"] == []
    assert answered(answer_of([[1]], names=np.array(["p", "q"])), NDARRAY)["data"]["names"] == ["p", "q"]


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (Payload(Kind.JSON, {"b": np.float32(0.5), "a": np.arange(2)}), {"jsonData": {"a": [0, 1], "b": 0.5}}),
        (Payload(Kind.TEXT, "é"), {"strData": "é"}),
        (Payload(Kind.BYTES, b"abc"), {"binData": "YWJj"}),
        (Payload(Kind.TENSORS, {"y": np.array([[1]])}), {"data": {"names": ["t:0"], "ndarray": [[1]]}}),
        (
            Payload(Kind.TENSORS, {"y": np.array([[1]]), "t": np.array([b"\xc3\xa9", "x"], dtype=object)}),
            {"jsonData": {"y": [[1]], "t": ["é", "x"]}},
        ),
        (Payload(Kind.TENSORS, {}), {"jsonData": {}}),
    ],
)
def test_other_answers(answer, body):
    """An answer's kind decides its field, whatever the request was; several tensors are jsonData by name."""
    assert answered(answer, NDARRAY) == {**body, "meta": {}}


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (answer_of([1 + 2j]), "complex128"),
        (answer_of([b"x"]), "array of"),
        (Payload(Kind.JSON, {"a": {1}}), "set"),
        (Payload(Kind.TENSORS, {"out": np.array([b"\xff"], dtype=object)}), "'out'"),
        (Payload(Kind.MANY, []), "MANY"),
        (Payload(Kind.RAW, {"a": b"x"}), "bytes"),
    ],
)
def test_answers_that_cannot_be_written(answer, names):
    """What cannot be put on the wire is a 500 that names it."""
    with pytest.raises(BadAnswer, match=names):
        answered(answer, NDARRAY)


def test_nan_is_written_as_asked():
    """NaN is null unless the context says literal."""
    request = decode(NDARRAY)
    answer = answer_of(np.array([0.1, np.nan, np.inf], dtype="f4"))
    assert b"[0.1,null,null]" in seldon.encode(answer, request, HERE).body[0]
    literal = seldon.encode(answer, request, seldon.Context(nan="literal"))
    assert literal.body == [b'{"data":{"names":[],"ndarray":[0.1,NaN,Infinity]},"meta":{}}\n']


def test_keys_are_sorted():
    """Keys are in order at every level, and the body ends in a newline."""
    answer = Payload(Kind.JSON, {"b": {"d": 1, "c": 2}, "a": 3}, tags={"z": 1, "y": 2})
    response = seldon.encode(answer, decode(TEXT), HERE)
    assert response.body == [b'{"jsonData":{"a":3,"b":{"c":2,"d":1}},"meta":{"tags":{"y":2,"z":1}}}\n']


@pytest.mark.parametrize(
    ("result", "message", "data"),
    [
        ([], FEEDBACK, {"ndarray": []}),
        ([], {}, {"tensor": {"shape": [0]}}),
        ([[1, 2]], FEEDBACK, {"names": ["t:0", "t:1"], "ndarray": [[1.0, 2.0]]}),
        ([1], {"request": TENSOR}, {"tensor": {"shape": [1], "values": [1.0]}}),
    ],
)
def test_feedback_answers(result, message, data):
    """Answers to feedback have float numbers and no empty fields, and of the request's meta the puid."""
    for raw in (False, True):
        request = decode(message, "send_feedback", raw=raw)
        response = seldon.encode(answer_of(result, "send_feedback"), request, HERE)
        assert body_of(response)["data"] == data
        assert same_json(python_json.dumps(body_of(response)["data"]), python_json.dumps(data))
        assert body_of(response)["meta"] == ({"puid": "p"} if message is FEEDBACK else {})


def test_health_answers():
    """An answer without a request's message goes out as one to a request that had no data."""
    request = Payload(Kind.JSON, None, "health_status")
    assert body_of(seldon.encode(answer_of("healthy"), request, HERE)) == {"meta": {}, "strData": "healthy"}
    tensor = body_of(seldon.encode(answer_of([1, 2]), request, HERE))["data"]
    assert tensor == {"names": [], "tensor": {"shape": [2], "values": [1, 2]}}


@pytest.mark.parametrize("value", [{"b": 1, "a": {"x": np.float32(1)}}, [1, [1]], "x", None, 3])
def test_raw_answers_go_out_as_they_are(value):
    """A RAW answer is the whole body."""
    response = seldon.encode(Payload(Kind.RAW, value), decode([1], raw=True), HERE)
    assert body_of(response) == python_json.loads(python_json.dumps(value, default=float))
    assert response.status == 200


@pytest.mark.parametrize(
    ("code", "status"),
    [(418, 418), (200, 200), (-1, 200), (0, 200), (999, 200), ("418", 200), (True, 200), (None, 200)],
)
def test_raw_status_is_the_http_status(code, status):
    """The status.code of a raw predict is the HTTP status, if it can be one; of other methods it is not."""
    answer = Payload(Kind.RAW, {"status": {"code": code}})
    assert seldon.encode(answer, decode(TEXT, raw=True), HERE).status == status
    assert seldon.encode(answer, decode(TEXT, "route", raw=True), HERE).status == 200


def test_raw_metrics_are_hidden():
    """Without include_metrics a raw answer goes out without its metrics; its dict is not changed."""
    value = {"strData": "x", "meta": {"metrics": [{"key": "k"}], "tags": {"a": 1}}}
    answer = Payload(Kind.RAW, value)
    hidden = seldon.encode(answer, decode(TEXT, raw=True), seldon.Context(include_metrics=False))
    assert body_of(hidden) == {"strData": "x", "meta": {"tags": {"a": 1}}}
    assert body_of(seldon.encode(answer, decode(TEXT, raw=True), HERE)) == value
    for other in ({"meta": None}, [1], {"meta": {}}):
        shown = seldon.encode(Payload(Kind.RAW, other), decode(TEXT, raw=True), seldon.Context(include_metrics=False))
        assert body_of(shown) == other


def test_errors():
    """An error's body has Seldon's four fields, its own status and its headers."""
    response = seldon.encode_error(MethodNotAllowed("PUT", ["GET"]))
    assert (response.status, response.headers) == (405, [("Allow", "GET")])
    status = body_of(response)["status"]
    assert (status["code"], status["status"], status["reason"]) == (-1, 1, "METHOD_NOT_ALLOWED")
    assert status["info"].startswith("Method Not Allowed: PUT")


numeric = st.sampled_from([np.int64, np.float64, np.float32, np.uint8, np.int32, np.bool_, np.uint64])


@settings(deadline=None)
@given(
    array=numeric.flatmap(
        lambda dtype: npst.arrays(
            dtype,
            npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5),
            elements=None if dtype not in {np.float32, np.float64} else {"allow_nan": False, "allow_infinity": False},
        )
    ),
    message=st.sampled_from([NDARRAY, TENSOR, TEXT]),
    padding=st.sampled_from(["", LONG]),
)
def test_arrays_come_back(array, message, padding):
    """An array that is answered, and sent on as it is to the next model, is the same numbers there."""
    body = b"".join(seldon.encode(Payload(Kind.TENSOR, array), decode(message), HERE).body)
    back = decode(body.decode() + padding).value
    assert back.shape == array.shape
    if array.dtype != np.uint64:
        assert np.array_equal(back.astype(array.dtype), array)
        assert same_json(b"".join(seldon.encode(Payload(Kind.TENSOR, back), decode(body), HERE).body), body)

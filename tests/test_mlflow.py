"""MLflow's scoring server: data frames, CSV, instances and inputs in, predictions out."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.errors import (
    BadAnswer,
    BadRequest,
    ModelFailed,
    NotFound,
    NotImplementedHere,
    Unavailable,
    UnsupportedMediaType,
)
from prefork.http import Request
from prefork.payload import Kind, ModelSpec, Payload, TensorSpec
from prefork.protocols import mlflow

FREE = ModelSpec("m")
BY_COLUMN = ModelSpec(
    "m",
    inputs=(
        TensorSpec("FP32", (-1,), "width"),
        TensorSpec("BYTES", (-1,), "colour"),
        TensorSpec("INT64", (-1,), "n", optional=True),
    ),
)
ONE_MATRIX = ModelSpec("m", inputs=(TensorSpec("FP64", (-1, 2), "X"),))


def request(body: bytes, content_type: str) -> Request:
    return Request("POST", "/invocations", b"", {b"content-type": content_type.encode()}, [body])


def decode(body: object, spec: ModelSpec = FREE) -> Payload:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return mlflow.decode(request(text, "application/json"), spec)[0]


def decode_csv(text: str | bytes, spec: ModelSpec = FREE) -> Payload:
    body = text if isinstance(text, bytes) else text.encode()
    return mlflow.decode(request(body, "text/csv"), spec)[0]


def split(columns: list | None, data: list) -> dict:
    frame = {"data": data} if columns is None else {"columns": columns, "data": data}
    return {"dataframe_split": frame}


def encode(value: object, kind: Kind) -> object:
    return json.loads(b"".join(mlflow.encode(Payload(kind, value), None, FREE).body))


def same(found: np.ndarray, expected: object, dtype: object) -> None:
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, np.array(expected, dtype=dtype))


def refused(words: list[str], call) -> None:
    with pytest.raises(BadRequest) as raised:
        call()
    assert [word for word in words if word not in raised.value.message] == []


FRAMES = [
    ([[1, 2], [3, 4]], "i8"),
    ([[1, 2.5], [3, 4]], "f8"),
    ([[True, False]], "?"),
    ([["a", "b"], ["c", "däd"]], "U3"),
    ([[1, "a"], [2.5, "b"]], object),
    ([["a", None]], object),
    ([[True, "a"]], object),
    ([[[1, 2], "a"]], object),
    ([list(range(2)) for _ in range(5000)], "i8"),
]


@pytest.mark.parametrize(("data", "dtype"), FRAMES)
def test_a_split_frame_is_a_matrix_with_names(data, dtype):
    """A frame of one type is one array, a mixed one an object array of its values; the columns are its names."""
    payload = decode(split(["a", "b"], data))
    assert (payload.kind, payload.names) == (Kind.TENSOR, ["a", "b"])
    expected = np.empty((len(data), 2), dtype=object)
    for at, row in enumerate(data):
        expected[at, 0], expected[at, 1] = row
    assert payload.value.shape == expected.shape
    assert payload.value.dtype == np.dtype(dtype)
    assert payload.value.tolist() == expected.tolist()


def test_long_frames_are_like_short_ones():
    """A frame's length changes nothing: rows, columns by name, and cells that are lists are what they are in a short one."""
    rows = [[at, at + 0.5] for at in range(3000)]
    same(decode(split(["a", "b"], rows)).value, rows, "f8")
    by_name = decode(
        split(["n", "width"], rows),
        ModelSpec("m", inputs=(TensorSpec("FP32", (-1,), "width"), TensorSpec("INT64", (-1,), "n"))),
    )
    same(by_name.value["n"], list(range(3000)), "i8")
    same(by_name.value["width"], [row[1] for row in rows], "f4")
    cells = decode(split(["a", "b"], [[row, row] for row in rows])).value
    assert (cells.shape, cells.dtype, cells[7, 1]) == ((3000, 2), np.dtype(object), [7, 7.5])
    refused(["dataframe_split.data[0]", "1 columns"], lambda: decode(split(["a"], rows)))
    refused(["dataframe_split.data[0]"], lambda: decode(split(["a"], [row[0] for row in rows])))
    refused(["dataframe_split.data[2999]"], lambda: decode(split(["a", "b"], [*rows[:-1], [1]])))


def test_records_are_the_same_frame():
    """`dataframe_records` is the frame of its first record's keys, in their order, whatever that of the others."""
    payload = decode({"dataframe_records": [{"b": 1, "a": 2}, {"a": 4, "b": 3}]})
    assert payload.names == ["b", "a"]
    same(payload.value, [[1, 2], [3, 4]], "i8")


def test_null_in_numbers_is_nan():
    """A missing number is NaN, as in a data frame."""
    same(decode(split(["a", "b"], [[1, None], [None, 2]])).value, [[1, math.nan], [math.nan, 2]], "f8")


def test_empty_frames_keep_their_width():
    """A frame of no rows has its columns."""
    payload = decode(split(["a", "b"], []))
    assert (payload.value.shape, payload.names) == ((0, 2), ["a", "b"])
    assert decode({"dataframe_records": []}).value.shape == (0, 0)


def test_columns_and_index_may_be_pandas_own():
    """Columns may be numbers or absent, and an index is not in the way, as pandas writes them."""
    frame = {"dataframe_split": {"columns": [0, 1], "index": [5], "data": [[1, 2]]}}
    assert decode(frame).names == [0, 1]
    assert decode(split(None, [[1, 2]])).names is None


def test_big_integers_stay_exact():
    """int64 and uint64 cells keep every digit."""
    same(decode(split(["a", "b"], [[2**63 - 1, -(2**63)]])).value, [[2**63 - 1, -(2**63)]], "i8")
    same(decode(split(["a", "b"], [[2**64 - 1, 0]])).value, [[2**64 - 1, 0]], "u8")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (split(["a", "b"], [[1, 2], [3]]), ["dataframe_split.data[1]", "1 values", "2 columns"]),
        (split(["a"], [[1, 2]]), ["dataframe_split.data[0]", "1 columns"]),
        (split(None, [[1, 2], [3]]), ["dataframe_split.data[1]"]),
        (split(["a"], [1]), ["dataframe_split.data[0]"]),
        (split(["a"], 3), ["dataframe_split.data"]),
        (split(["a", "a"], [[1, 2]]), ["dataframe_split", "one name"]),
        (split(["a"], [[2**64]]), ["dataframe_split"]),
        ({"dataframe_split": {"columns": ["a"]}}, ["data"]),
        ({"dataframe_split": [1]}, ["dataframe_split"]),
        ({"dataframe_split": {"columns": "a", "data": []}}, ["columns"]),
        ({"dataframe_records": [{"a": 1}, {"b": 1}]}, ["dataframe_records[1]", "'a'"]),
        ({"dataframe_records": [{"a": 1}, {"a": 1, "b": 1}]}, ["dataframe_records[1]", "'b'"]),
        ({"dataframe_records": [{"a": 1}, 2]}, ["dataframe_records"]),
        ({"dataframe_records": {"a": 1}}, ["dataframe_records"]),
        ({"instances": [[1], [1, 2]]}, ["instances"]),
        ({"inputs": {"a": [[1], [1, 2]]}}, ["'a'"]),
        ({"inputs": [1], "params": [1]}, ["params"]),
    ],
)
def test_bad_frames_are_named(body, words):
    """What is ragged, missing, doubled or of another type is a 400 that names the row, the column or the key."""
    refused(words, lambda: decode(body))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["dataframe_split", "dataframe_records", "instances", "inputs", "none"]),
        ({"params": {}}, ["none"]),
        ({"inputs": [1], "instances": [1]}, ["it has instances, inputs"]),
        ({"inputs": [1], "messages": []}, ["messages"]),
        ({"columns": ["a"], "data": [[1]]}, ["columns"]),
    ],
)
def test_exactly_one_layout(body, words):
    """A body has exactly one of the four layouts beside `params`; anything else is a 400 that names the keys."""
    refused(words, lambda: decode(body))


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b"\xff"])
def test_broken_json(body):
    """A body that is no JSON object is a 400."""
    with pytest.raises(BadRequest):
        decode(body)


def test_params_reach_the_model():
    """`params` are the payload's parameters; without them there are none."""
    assert decode({"inputs": [1], "params": {"t": 0.5, "k": [1]}}).parameters == {"t": 0.5, "k": [1]}
    assert decode({"inputs": [1]}).parameters is None


def test_instances_and_inputs_are_tensors():
    """`instances` and `inputs` are TF-Serving's rows and columns."""
    same(decode({"instances": [[1, 2]]}).value, [[1, 2]], "i8")
    same(decode({"inputs": [0.5]}).value, [0.5], "f8")
    payload = decode({"inputs": {"a": [1], "s": ["x"]}})
    assert payload.kind is Kind.TENSORS
    same(payload.value["s"], [b"x"], object)
    same(decode({"instances": [{"a": 1}, {"a": 2}]}).value["a"], [1, 2], "i8")


def test_streaming_models_are_refused():
    """A model whose answers are a stream is a 501 that says where to ask."""
    with pytest.raises(NotImplementedHere, match="generate_stream"):
        decode({"inputs": [1]}, ModelSpec("m", streams=True))


# --- a model with a signature


@pytest.mark.parametrize(
    "body",
    [
        split(["colour", "width"], [["red", 1], ["blue", 2.5]]),
        {"dataframe_records": [{"width": 1, "colour": "red"}, {"width": 2.5, "colour": "blue"}]},
    ],
)
def test_columns_become_the_models_inputs(body):
    """Columns that are named as the model's inputs are those inputs, one value a row, in their datatypes."""
    payload = decode(body, BY_COLUMN)
    assert payload.kind is Kind.TENSORS
    assert payload.value.keys() == {"width", "colour"}
    same(payload.value["width"], [1, 2.5], "f4")
    same(payload.value["colour"], [b"red", b"blue"], object)


def test_the_whole_frame_may_be_one_input():
    """For a model of one input, columns of other names are that input's matrix."""
    payload = decode(split(["a", "b"], [[1, 2]]), ONE_MATRIX)
    assert payload.kind is Kind.TENSORS
    same(payload.value["X"], [[1, 2]], "f8")


@pytest.mark.parametrize(
    ("columns", "row", "words"),
    [
        (["width"], [1], ["missing", "'colour'"]),
        (["width", "colour", "depth"], [1, "red", 2], ["unexpected", "'depth'"]),
        (["width", "colour"], ["wide", "red"], ["'width'", "FP32"]),
        (["width", "colour"], [1, None], ["'colour'"]),
        (["width", "colour", "n"], [1, "red", 1.5], ["'n'", "INT64"]),
        (["a", "b"], [1, 2], ["unexpected", "'a'"]),
    ],
)
def test_columns_that_do_not_fit_are_named(columns, row, words):
    """Columns unknown, missing or of another type are a 400 that names them."""
    refused(words, lambda: decode(split(columns, [row]), BY_COLUMN))


# --- CSV


@pytest.mark.parametrize(
    ("text", "rows", "dtype"),
    [
        ("a,b\n1,2\n3,-4\n", [[1, 2], [3, -4]], "i8"),
        ("a,b\r\n1,2.5\r\n\r\n3,1e3", [[1, 2.5], [3, 1000]], "f8"),
        ("\ufeffa,b\n1,2\n", [[1, 2]], "i8"),
        ("a,b\n1,\n,2\n", [[1, math.nan], [math.nan, 2]], "f8"),
        ("a,b\nnan,-inf\n", [[math.nan, -math.inf]], "f8"),
        ("a,b\ntrue,False\n", [[True, False]], "?"),
        ('a,b\n"x, y","z ""q"""\n', [["x, y", 'z "q"']], "U5"),
        ("a,b\n1,red\n2,\n", [[1, "red"], [2, None]], object),
        ("a,b\n1_000,x\n", [["1_000", "x"]], "U5"),
        ("a,b\n12345678901234567890123,x\n", [["12345678901234567890123", "x"]], "U23"),
        ("a,b\n9999999999999999999,1\n", [[9999999999999999999, 1]], "u8"),
        ("a,b\n9999999999999999999,x\n-1,y\n", [["9999999999999999999", "x"], ["-1", "y"]], "U19"),
        ("a,b\n", [], "f8"),
    ],
)
def test_csv_is_a_frame(text, rows, dtype):
    """CSV is a frame: the header names the columns, columns of numbers are numbers, empty cells are missing."""
    payload = decode_csv(text)
    assert (payload.kind, payload.names) == (Kind.TENSOR, ["a", "b"])
    same(payload.value, np.array(rows, dtype=dtype).reshape(-1, 2), dtype)


def test_csv_columns_become_the_models_inputs():
    """A CSV's columns go by name to a model with a signature."""
    payload = decode_csv("colour,width\nred,1\n", BY_COLUMN)
    same(payload.value["width"], [1], "f4")
    same(payload.value["colour"], [b"red"], object)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["column names"]),
        ("\n", ["column names"]),
        ("a,b\n1,2\n3\n", ["line 3", "1 values", "2 columns"]),
        ("a,a\n1,2\n", ["text/csv", "one name"]),
        ('a,b\n"1,2\n', ["line 2"]),
        (b"a\n\xff\n", ["UTF-8"]),
    ],
)
def test_bad_csv_is_named(text, words):
    """A CSV that is ragged, unterminated, without a header or not UTF-8 is a 400 that names the line."""
    refused(words, lambda: decode_csv(text))


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/x-www-form-urlencoded", "text/csv; charset=latin-1", "json"]
)
def test_other_types_are_refused(content_type):
    """Any other Content-Type is a 415."""
    with pytest.raises(UnsupportedMediaType):
        mlflow.decode(request(b'{"inputs": [1]}', content_type), FREE)


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_by_any_spelling(content_type):
    """The Content-Type is compared without its case and parameters."""
    assert mlflow.decode(request(b'{"inputs": [1]}', content_type), FREE)[0].kind is Kind.TENSOR
    assert mlflow.decode(request(b"a\n1\n", 'text/csv; charset="UTF-8"'), FREE)[0].kind is Kind.TENSOR


def test_long_cells_are_text():
    """A long cell that is almost a number is text, told in one look at it."""
    cell = "1" * 120_000
    same(decode_csv(f"a,b\n{cell},x\n").value, [[cell, "x"]], "U120000")
    same(decode_csv(f"a,b\n{cell}x,{cell}.{cell[:9]}e\n").value, [[f"{cell}x", f"{cell}.{cell[:9]}e"]], "U120011")


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=4)


@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=4)))
def test_any_csv_text_comes_back(rows):
    """Text that a CSV writer wrote is a frame of its rows: each cell its text, or the number that the text means."""
    width = len(rows[0]) if rows else 1
    written = io.StringIO()
    csv.writer(written).writerows([[f"c{at}" for at in range(width)], *rows])
    found = decode_csv(written.getvalue()).value
    assert found.shape == (len(rows), width)
    for cell, text in zip(found.ravel().tolist(), [cell for row in rows for cell in row], strict=True):
        assert cell == text or cell is None or not isinstance(cell, str)


# --- out


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Kind.TENSOR, np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (Kind.TENSOR, np.array(["a", "b"]), ["a", "b"]),
        (Kind.TENSOR, np.array([b"a", b"\xff"], dtype=object), ["a", {"b64": "/w=="}]),
        (Kind.TENSORS, {"y": np.array([1.5]), "z": np.array([[1], [2]])}, {"y": [1.5], "z": [[1], [2]]}),
        (Kind.TENSORS, {"y": np.array([0.1], dtype="f4")}, {"y": [0.1]}),
        (Kind.JSON, {"a": [None]}, {"a": [None]}),
        (Kind.TEXT, "hello", "hello"),
    ],
)
def test_predictions(kind, value, expected):
    """Every answer is the value of `predictions`, named outputs an object of lists."""
    assert encode(value, kind) == {"predictions": expected}


def test_feedback_is_no_answer():
    """A payload that only Seldon has words for is a 500 that names its kind."""
    with pytest.raises(BadAnswer, match="FEEDBACK"):
        encode(None, Kind.FEEDBACK)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BadRequest("no"), 400, "BAD_REQUEST"),
        (UnsupportedMediaType("no"), 415, "BAD_REQUEST"),
        (NotFound("no"), 404, "ENDPOINT_NOT_FOUND"),
        (ModelFailed("no"), 500, "INTERNAL_ERROR"),
        (NotImplementedHere("no"), 501, "NOT_IMPLEMENTED"),
        (Unavailable("no"), 503, "TEMPORARILY_UNAVAILABLE"),
    ],
)
def test_errors(error, status, code):
    """An error is MLflow's code and message, with its status and headers."""
    error.headers = (("Retry-After", "1"),)
    response = mlflow.encode_error(error)
    assert (response.status, response.headers) == (status, [("Retry-After", "1")])
    assert json.loads(response.body[0]) == {"error_code": code, "message": "no"}


def test_ping_and_version():
    """/ping and /health are a line with a status, /version is text."""
    assert (mlflow.encode_ping().status, mlflow.encode_ping(ready=False).status) == (200, 503)
    assert mlflow.encode_ping().body == [b"\n"]
    assert mlflow.encode_version("1.2.3").body == [b"1.2.3"]
    assert mlflow.encode_version("1.2.3").content_type.startswith("text/plain")

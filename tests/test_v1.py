"""V1 (TF-Serving's REST API): rows and columns in, rows and columns out."""

from __future__ import annotations

import base64
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from prefork.errors import BadAnswer, BadRequest, NotFound, NotImplementedHere, Unavailable
from prefork.http import Request
from prefork.payload import Kind, ModelSpec, Payload, TensorSpec
from prefork.protocols import v1
from prefork.protocols.v1 import Form

FREE = ModelSpec("m")
TYPED = ModelSpec(
    "m",
    version="3",
    inputs=(TensorSpec("FP32", (-1, 2), "a"), TensorSpec("INT64", (-1,), "n", optional=True)),
    outputs=(TensorSpec("FP32", (-1,), "y"), TensorSpec("BYTES", None, "raw_bytes")),
)


def request(body: object) -> Request:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "/v1/models/m:predict", b"", {}, [text])


def decode(body: object, spec: ModelSpec = FREE) -> Payload:
    return v1.decode(request(body), spec)[0]


def encode(value: object, form: Form = Form.ROW, kind: Kind = Kind.TENSOR, spec: ModelSpec = FREE, nan: str = "null"):
    response = v1.encode(Payload(kind, value), form, spec, nan)
    assert response.status == 200
    assert response.content_type == "application/json"
    return json.loads(b"".join(response.body))


def spec_of(*tensors: TensorSpec) -> ModelSpec:
    return ModelSpec("m", inputs=tensors)


def same(found: np.ndarray, expected: list | np.ndarray, dtype: object) -> None:
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, np.array(expected, dtype=dtype))


# --- rows in


@pytest.mark.parametrize(
    ("instances", "dtype"),
    [
        ([1, 2, 5], "i8"),
        ([[1, 2], [3, 4]], "i8"),
        ([[1, 2.5], [3, 4]], "f8"),
        ([[[1, 2]], [[3, 4]]], "i8"),
        ([True, False], "?"),
        ([2**63], "u8"),
        (["foo", "bar", "bäz"], "U3"),
        ([["a"], ["b"]], "U1"),
        ([], "f8"),
        (list(range(10_000)), "i8"),
    ],
)
def test_a_list_of_values_is_one_array(instances, dtype):
    """Row format with bare values is one tensor, its dtype as numpy infers it."""
    payload, form = v1.decode(request({"instances": instances}), FREE)
    assert (payload.kind, payload.names, form) == (Kind.TENSOR, None, Form.ROW)
    same(payload.value, instances, dtype)


@pytest.mark.parametrize("texts", [["a\0", "b"], ["x" * 5000] + [""] * 5000])
def test_text_that_numpy_would_change_is_objects(texts):
    """Text with trailing NULs, and text of very different lengths, is `str` objects: no NUL lost, no memory blown up."""
    same(decode({"instances": texts}).value, texts, object)


def test_objects_are_stacked_by_name():
    """Row format with objects is one tensor a key, the rows along a new first axis; text is bytes."""
    rows = [
        {"tag": "foo", "signal": [1, 2, 3], "sensor": [[1, 2], [3, 4]]},
        {"sensor": [[4, 5], [6, 8]], "tag": "bär", "signal": [3, 4, 1.5]},
    ]
    payload = decode({"instances": rows})
    assert payload.kind is Kind.TENSORS
    assert list(payload.value) == ["tag", "signal", "sensor"]
    same(payload.value["tag"], [b"foo", "bär".encode()], object)
    same(payload.value["signal"], [[1, 2, 3], [3, 4, 1.5]], "f8")
    same(payload.value["sensor"], [[[1, 2], [3, 4]], [[4, 5], [6, 8]]], "i8")


def test_long_rows_are_stacked_too():
    """Rows long enough to arrive as arrays stack like short ones, integers staying integers."""
    row = list(range(3000))
    payload = decode({"instances": [{"x": row, "y": 1}, {"x": row[::-1], "y": 2}]})
    same(payload.value["x"], [row, row[::-1]], "i8")
    same(payload.value["y"], [1, 2], "i8")


@pytest.mark.parametrize(
    ("instances", "words"),
    [
        ([{"a": 1}, {"b": 1}], ["instances[1]", "'a'"]),
        ([{"a": 1}, {"a": 1, "b": 2}], ["instances[1]", "'b'"]),
        ([{"a": 1}, {"a": 1}, 3], ["instances[2]"]),
        ([{"a": [1, 2]}, {"a": [1]}], ["instances[1]", "'a'", "[1]", "[2]"]),
        ([{"a": 1}, {"a": "x"}], ["instances[1]", "'a'"]),
        ([{"a": list(range(3000))}, {"a": [1]}], ["instances[1]", "'a'"]),
        ([{"a": None}], ["'a'"]),
        ([{"a": ["x", 1]}], ["'a'"]),
        ([{"a": {"b": 1}}], ["'a'"]),
        ([1, {"a": 1}], ["instances"]),
        ([[1, 2], [3]], ["instances"]),
        ([[1, 2], 3], ["instances"]),
        ([None], ["instances"]),
        ([2**64], ["instances"]),
        ([True, 2**64], ["instances"]),
        ([{"a": -1}, {"a": 2**63}], ["'a'", "64"]),
        ("text", ["instances"]),
        (3, ["instances"]),
        ({"a": [1]}, ["instances"]),
    ],
)
def test_bad_rows_are_named(instances, words):
    """Rows that differ in keys, shape or kind, and values that are no tensor, are a 400 that says which."""
    with pytest.raises(BadRequest) as raised:
        decode({"instances": instances})
    assert [word for word in words if word not in raised.value.message] == []


def test_b64_is_bytes():
    """`{"b64": ...}` is bytes wherever a value may stand, and what stands beside it becomes bytes too."""
    wrapped = {"b64": base64.b64encode(b"\xff\x00").decode()}
    same(decode({"instances": [wrapped, "text"]}).value, [b"\xff\x00", b"text"], object)
    same(decode({"instances": [[wrapped], [wrapped]]}).value, [[b"\xff\x00"], [b"\xff\x00"]], object)
    same(decode({"instances": [{"image_bytes": wrapped}]}).value["image_bytes"], [b"\xff\x00"], object)
    same(decode({"inputs": {"image": wrapped}}).value["image"], np.array(b"\xff\x00", dtype=object), object)
    assert decode({"inputs": wrapped}).value.item() == b"\xff\x00"


@pytest.mark.parametrize("wrapped", [{"b64": "***"}, {"b64": "YQ"}, {"b64": 1}, {"b64": "é"}])
def test_broken_b64_is_named(wrapped):
    """What is not base64 is a 400 that names the field."""
    with pytest.raises(BadRequest, match="instances"):
        decode({"instances": [wrapped]})


def test_null_among_numbers_is_nan():
    """A `null` among numbers is NaN, so that an answer of ours can be sent back."""
    same(decode({"instances": [[1, None], [2, 3]]}).value, [[1, math.nan], [2, 3]], "f8")


def test_nan_literals_are_numbers():
    """TF-Serving's NaN and Infinity literals are accepted."""
    same(decode(b'{"instances": [NaN, Infinity, -Infinity, 1]}').value, [math.nan, math.inf, -math.inf, 1], "f8")


# --- columns in


def test_columns_need_no_common_dimension():
    """Column format with an object is one tensor a key, of whatever shapes."""
    payload, form = v1.decode(request({"inputs": {"a": [[1, 2], [3, 4]], "b": [0.5], "c": 7, "s": "x"}}), FREE)
    assert (payload.kind, form) == (Kind.TENSORS, Form.COLUMN)
    same(payload.value["a"], [[1, 2], [3, 4]], "i8")
    same(payload.value["b"], [0.5], "f8")
    same(payload.value["c"], np.int64(7), "i8")
    same(payload.value["s"], np.array(b"x", dtype=object), object)


@pytest.mark.parametrize("inputs", [[[1, 2], [3, 4]], 5, [0.25], "text"])
def test_a_bare_column_is_one_array(inputs):
    """Column format with a value, bare or in lists, is one tensor."""
    payload = decode({"inputs": inputs})
    assert payload.kind is Kind.TENSOR
    np.testing.assert_array_equal(payload.value, np.array(inputs))


# --- the body


@pytest.mark.parametrize("body", [{}, {"instances": [1], "inputs": [1]}, {"signature_name": "s"}, {"inputz": [1]}])
def test_exactly_one_layout(body):
    """A body has exactly one of `instances` and `inputs`; the message names both."""
    with pytest.raises(BadRequest, match=r"instances.*inputs"):
        decode(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"instances": [1], "signature_name": 3}',
        b'{"instances": ["\\ud800"]}',
        b'{"inputs": {"a": "\\udc00"}, "instancez": NaN}',
    ],
)
def test_broken_bodies(body):
    """A body that is no JSON object of the format is a 400."""
    with pytest.raises(BadRequest):
        decode(body)


def test_nesting_is_bounded():
    """A body that nests deeper than allowed is a 400, and so are more lists than numpy has axes."""
    deep = json.loads("[" * 33 + "1" + "]" * 33)
    with pytest.raises(BadRequest, match="nest"):
        decode({"instances": deep})
    with pytest.raises(BadRequest, match="nest"):
        v1.decode(request({"instances": [[[1]]]}), FREE, max_depth=3)
    assert v1.decode(request({"instances": [[[1]]]}), FREE, max_depth=4)[0].value.shape == (1, 1, 1)


def test_the_signature_name_reaches_the_model():
    """`signature_name` is a parameter of the payload; without it there are none."""
    assert decode({"instances": [1], "signature_name": "other"}).parameters == {"signature_name": "other"}
    assert decode({"instances": [1]}).parameters is None


def test_streaming_models_are_refused():
    """A model whose answers are a stream is a 501 that says where to ask."""
    with pytest.raises(NotImplementedHere, match="generate_stream"):
        decode({"instances": [1]}, ModelSpec("m", streams=True))


# --- a model with a signature


def test_a_bare_value_is_the_one_required_input():
    """A bare value is the one input that the model must have, in that input's datatype."""
    payload = decode({"instances": [[1, 2], [3, 4]]}, TYPED)
    assert payload.kind is Kind.TENSORS
    same(payload.value["a"], [[1, 2], [3, 4]], "f4")


@pytest.mark.parametrize(
    ("datatype", "sent", "dtype"),
    [
        ("FP32", [1, 2], "f4"),
        ("FP64", [1, 2], "f8"),
        ("FP16", [0.5, 2], "f2"),
        ("BF16", [0.5, 2], "f4"),
        ("INT8", [-128, 127], "i1"),
        ("INT32", [1.0, -2.0], "i4"),
        ("FP32", [math.inf, math.nan], "f4"),
        ("UINT64", [0, 2**64 - 1], "u8"),
        ("INT64", [-(2**63), 2**63 - 1], "i8"),
        ("BOOL", [True, False], "?"),
        ("", [1, 2], "i8"),
        ("INT32", [], "i4"),
        ("BOOL", [], "?"),
        ("BYTES", [], object),
    ],
)
def test_values_take_the_signatures_datatype(datatype, sent, dtype):
    """Values become the declared datatype wherever that loses nothing."""
    payload = decode({"inputs": {"x": sent}}, spec_of(TensorSpec(datatype, (-1,), "x")))
    same(payload.value["x"], sent, dtype)


@pytest.mark.parametrize(
    ("datatype", "sent"),
    [
        ("INT32", [1.5]),
        ("INT32", [math.nan]),
        ("INT32", [math.inf]),
        ("INT64", [1e19]),
        ("INT32", [True]),
        ("INT8", [128]),
        ("UINT8", [-1]),
        ("FP32", [1e39]),
        ("FP16", [70000]),
        ("FP32", [True]),
        ("FP32", ["1"]),
        ("BOOL", [1]),
        ("BYTES", [1]),
        ("INT64", [2**63]),
    ],
)
def test_values_that_do_not_fit_are_named(datatype, sent):
    """A value of another kind, or out of the datatype's range, is a 400 that names the input and the datatype."""
    with pytest.raises(BadRequest, match=f"'x'.*{datatype}"):
        decode({"inputs": {"x": sent}}, spec_of(TensorSpec(datatype, (-1,), "x")))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"inputs": {"a": [[1, 2]], "z": [1]}}, ["'z'", "a, n"]),
        ({"inputs": {"n": [1]}}, ["'a'"]),
        ({"inputs": {}}, ["'a'"]),
        ({"inputs": {"a": [1, 2]}}, ["'a'", "[-1, 2]", "[2]"]),
        ({"instances": [{"a": [1, 2, 3]}]}, ["'a'", "[1, 3]"]),
    ],
)
def test_the_signature_is_kept(body, words):
    """Unknown, missing and misshapen inputs are a 400 that names them."""
    with pytest.raises(BadRequest) as raised:
        decode(body, TYPED)
    assert [word for word in words if word not in raised.value.message] == []


@pytest.mark.parametrize(
    ("shape", "sent", "expected"),
    [
        ((1,), 5, [5]),
        ((), [5], 5),
        ((-1, 1), 5, [[5]]),
        ((-1, 1), [5, 6], [[5], [6]]),
        ((-1,), [[5], [6]], [5, 6]),
    ],
)
def test_columns_and_single_values_fit(shape, sent, expected):
    """A column may be sent flat or as lists of one, and one value in any shape of one."""
    same(decode({"inputs": {"x": sent}}, spec_of(TensorSpec("INT64", shape, "x"))).value["x"], expected, "i8")


@pytest.mark.parametrize(("shape", "sent"), [((2,), 5), ((-1,), [[5, 6]]), ((-1, 1), [[[5, 6]]]), ((2, 1), [5, 6, 7])])
def test_other_shapes_do_not_fit(shape, sent):
    """Nothing else is reshaped."""
    with pytest.raises(BadRequest, match=r"shape.*'x'"):
        decode({"inputs": {"x": sent}}, spec_of(TensorSpec("INT64", shape, "x")))


def test_a_bare_value_needs_one_input_to_mean():
    """A bare value for a model with two required inputs is a 400 that names them."""
    with pytest.raises(BadRequest, match="a, b"):
        decode({"instances": [1]}, spec_of(TensorSpec(name="a"), TensorSpec(name="b")))


# --- out


def test_one_output_is_bare():
    """One output, named or not, is its rows under `predictions`, its value under `outputs`."""
    array = np.array([[1, 2], [3, 4]])
    assert encode(array) == {"predictions": [[1, 2], [3, 4]]}
    assert encode({"y": array}, kind=Kind.TENSORS) == {"predictions": [[1, 2], [3, 4]]}
    assert encode({"y": array}, Form.COLUMN, Kind.TENSORS) == {"outputs": [[1, 2], [3, 4]]}
    assert encode(np.float64(2.5) * np.ones(()), Form.COLUMN) == {"outputs": 2.5}


def test_several_outputs_by_rows_and_columns():
    """Several outputs are one object a row, or one object of columns."""
    outputs = {"y": np.array([1.5, 2.5]), "label": np.array([b"a", b"b"], dtype=object)}
    assert encode(outputs, kind=Kind.TENSORS) == {"predictions": [{"y": 1.5, "label": "a"}, {"y": 2.5, "label": "b"}]}
    assert encode(outputs, Form.COLUMN, Kind.TENSORS) == {"outputs": {"y": [1.5, 2.5], "label": ["a", "b"]}}


@pytest.mark.parametrize("other", [np.zeros(3), np.zeros(())])
def test_rows_need_a_common_dimension(other):
    """Several outputs without a common first dimension cannot be rows: a 500 that names them."""
    with pytest.raises(BadAnswer, match=r"'y'.*'z'.*inputs"):
        encode({"y": np.zeros(2), "z": other}, kind=Kind.TENSORS)


def test_bytes_out():
    """BYTES are text where they are UTF-8 and b64 where not; always b64 in outputs named `*_bytes`, as TF-Serving does."""
    found = np.array([["ä".encode(), b"\xff"]], dtype=object)
    assert encode({"x": found}, kind=Kind.TENSORS) == {"predictions": [["ä", {"b64": "/w=="}]]}
    assert encode({"x_bytes": found}, kind=Kind.TENSORS) == {"predictions": [[{"b64": "w6Q="}, {"b64": "/w=="}]]}
    assert encode(np.array(["ä"])) == {"predictions": ["ä"]}
    named = ModelSpec("m", outputs=(TensorSpec("BYTES", None, "x_bytes"),))
    assert encode(np.array(["ä"]), spec=named) == {"predictions": [{"b64": "w6Q="}]}
    assert encode(np.zeros((2, 0), dtype=object)) == {"predictions": [[], []]}


def test_lists_stay_lists():
    """A tensor that a model gave as a list that numpy would change is written as it is."""
    assert encode([[1, "a"], [True]]) == {"predictions": [[1, "a"], [True]]}
    outputs = {"y": [[1], [2, 3]], "z": np.array([1, 2])}
    assert encode(outputs, kind=Kind.TENSORS) == {"predictions": [{"y": [1], "z": 1}, {"y": [2, 3], "z": 2}]}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Kind.JSON, {"a": [1, None]}, {"a": [1, None]}),
        (Kind.JSON, [1, 2], [1, 2]),
        (Kind.TEXT, "hello", "hello"),
        (Kind.BYTES, b"hello", "hello"),
        (Kind.BYTES, b"\xff", {"b64": "/w=="}),
        (Kind.RAW, {"x": 1}, {"x": 1}),
    ],
)
def test_other_answers(kind, value, expected):
    """JSON, text and bytes are the value of `predictions` or `outputs`."""
    assert encode(value, kind=kind) == {"predictions": expected}
    assert encode(value, Form.COLUMN, kind) == {"outputs": expected}


def test_feedback_is_no_answer():
    """A payload that only Seldon has words for is a 500 that names its kind."""
    with pytest.raises(BadAnswer, match="MANY"):
        encode([], kind=Kind.MANY)


def test_numbers_out_are_exact():
    """float32 prints the shortest text that reads back, integers print exactly, NaN is null or literal as set."""

    def text(array, nan="null"):
        return b"".join(v1.encode(Payload(Kind.TENSOR, array), Form.ROW, FREE, nan).body)

    assert text(np.array([0.1], dtype="f4")) == b'{"predictions":[0.1]}'
    assert text(np.array([2**63 - 1])) == b'{"predictions":[9223372036854775807]}'
    assert text(np.array([2**64 - 1], dtype="u8")) == b'{"predictions":[18446744073709551615]}'
    assert text(np.array([math.nan])) == b'{"predictions":[null]}'
    assert text(np.array([math.nan]), nan="literal") == b'{"predictions":[NaN]}'
    assert text(np.array([True])) == b'{"predictions":[true]}'


def test_errors():
    """An error is `{"error": text}` with its status and headers."""
    response = v1.encode_error(NotFound("no such model"))
    assert (response.status, json.loads(response.body[0])) == (404, {"error": "no such model"})
    error = Unavailable("full")
    error.headers = (("Retry-After", "1"),)
    assert v1.encode_error(error).headers == [("Retry-After", "1")]


def test_status():
    """GET /v1/models/NAME says which version is available, in TF-Serving's shape."""
    assert json.loads(v1.encode_status(TYPED).body[0]) == {
        "model_version_status": [
            {"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }


def test_metadata():
    """GET /v1/models/NAME/metadata is the signature as TF-Serving's `serving_default`."""
    found = json.loads(v1.encode_metadata(TYPED).body[0])
    assert found["model_spec"] == {"name": "m", "signature_name": "", "version": "3"}
    signature = found["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["a"] == {
        "dtype": "DT_FLOAT",
        "tensor_shape": {"dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}], "unknown_rank": False},
        "name": "a",
    }
    assert signature["outputs"]["raw_bytes"] == {
        "dtype": "DT_STRING",
        "tensor_shape": {"dim": [], "unknown_rank": True},
        "name": "raw_bytes",
    }
    free = json.loads(v1.encode_metadata(FREE).body[0])
    assert free["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"] == {}


# --- round trips

NUMBERS = st.sampled_from(["i8", "u8", "f8", "?"])
SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, max_side=4)


@st.composite
def tensors(draw, dtypes=NUMBERS, shapes=SHAPES):
    dtype = np.dtype(draw(dtypes))
    if dtype.kind == "O":
        return draw(arrays.arrays(dtype, shapes, elements=st.binary(max_size=4)))
    return draw(arrays.arrays(dtype, shapes, elements=arrays.from_dtype(dtype, allow_nan=False, allow_infinity=False)))


@given(tensors(), st.sampled_from(list(Form)))
def test_what_goes_out_comes_back(array, form):
    """An answer sent back as a request is the same numbers in the same shape."""
    body = b"".join(v1.encode(Payload(Kind.TENSOR, array), form, FREE).body)
    found = decode(body.replace(b'"predictions"', b'"instances"').replace(b'"outputs"', b'"inputs"')).value
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


@given(st.dictionaries(st.text(min_size=1, max_size=3), tensors(st.sampled_from(["i8", "O"])), min_size=2, max_size=3))
def test_named_outputs_come_back(outputs):
    """Named answers by columns, sent back, are the same tensors: bytes too, whatever they are."""
    body = b"".join(v1.encode(Payload(Kind.TENSORS, outputs), Form.COLUMN, FREE).body)
    found = decode(body.replace(b'"outputs"', b'"inputs"', 1)).value
    assert list(found) == list(outputs)
    for name, array in outputs.items():
        same(found[name], array, array.dtype)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, st.sampled_from(["instances", "inputs"]), st.sampled_from([FREE, TYPED]))
def test_any_json_is_a_payload_or_a_400(value, layout, spec):
    """Whatever JSON stands in a body is decoded or refused as a bad request, never a failure of ours."""
    try:
        payload = decode({layout: value}, spec)
    except BadRequest:
        return
    assert payload.kind in {Kind.TENSOR, Kind.TENSORS}

"""V2 requests to payloads: JSON, binary data and raw bodies, and what is refused."""

from __future__ import annotations

import json
import math
import struct
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.errors import BadRequest, NotImplementedHere
from prefork.http import Request
from prefork.payload import DATATYPES, Kind, ModelSpec, Payload, TensorSpec
from prefork.protocols import v2
from v2_messages import ADD, ANY, BFLOAT, COUNT, LENGTH, TWO, echo_spec, request, spec, with_tail, x


def ask(spec: ModelSpec, body: dict[str, Any]) -> tuple[Payload, v2.Wanted]:
    return v2.decode(request(body), spec)


def refused(spec: ModelSpec, incoming: Request | dict[str, Any]) -> str:
    """The text of the 400 that the request gets."""
    with pytest.raises(BadRequest) as caught:
        v2.decode(request(incoming) if isinstance(incoming, dict) else incoming, spec)
    assert caught.value.status == 400
    return caught.value.message


# Requests in JSON


def test_tensors_keep_the_requests_order():
    """A payload holds the arrays by name in the request's order, in their datatype and shape."""
    payload, wanted = ask(
        TWO,
        {"inputs": [{"name": "Y", "shape": [1], "datatype": "FP64", "data": [2]}, x([1], "INT32")], "id": "7"},
    )
    assert payload.kind is Kind.TENSORS
    assert list(payload.value) == ["Y", "X"]
    assert [array.dtype.str for array in payload.value.values()] == ["<f8", "<i4"]
    assert wanted == v2.Wanted(id="7")
    assert payload.parameters is None


def test_a_model_without_named_inputs_takes_any():
    """Without named inputs every name, datatype and shape is taken, but not none."""
    payload, _ = ask(ANY, {"inputs": [x([1, 2], "INT8", [2, 1]), x(["a"], "BYTES") | {"name": "Z"}]})
    assert payload.value["X"].tolist() == [[1], [2]]
    assert payload.value["Z"].tolist() == [b"a"]
    assert refused(ANY, {"inputs": []}) == "expected at least 1 input but got 0 inputs for model 'any'"


def test_other_parameters_of_an_input_mean_nothing():
    """An input in JSON may carry parameters that are not about its data."""
    assert ask(ANY, {"inputs": [x([1], parameters={"content_type": "np"})]})[0].value["X"].tolist() == [1]


def test_optional_inputs_may_be_absent():
    """Only an input that is not optional has to be there."""
    inputs = (TensorSpec("FP32", (-1,), "X"), TensorSpec("FP32", (1,), "T", optional=True))
    optional = ModelSpec("m", inputs=inputs)
    assert list(ask(optional, {"inputs": [x([1])]})[0].value) == ["X"]
    message = refused(optional, {"inputs": [x([1]) | {"name": "T"}]})
    assert "Got input(s) ['T'], but missing required input(s) ['X']" in message


def test_a_spec_without_datatype_or_shape_takes_all():
    """An input that is only named takes every datatype and shape."""
    named = ModelSpec("m", inputs=(TensorSpec(name="X"),))
    assert ask(named, {"inputs": [x([True], "BOOL", [1, 1, 1])]})[0].value["X"].shape == (1, 1, 1)


GOOD = x([1, 2])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": [GOOD, GOOD]}, "input 'X' already exists in request"),
        ({"inputs": [GOOD | {"name": "Z"}]}, "unexpected inference input 'Z' for model 'echo_fp32'"),
        ({"inputs": []}, "missing required input(s) ['X']"),
        ({"inputs": [GOOD | {"datatype": "FLOAT"}]}, "invalid datatype for input X"),
        ({"inputs": [GOOD | {"datatype": "fp32"}]}, "invalid datatype for input X"),
        ({"inputs": [GOOD | {"datatype": "INT32"}]}, "'X' data-type is 'INT32', but model 'echo_fp32' expects 'FP32'"),
        ({"inputs": [GOOD | {"shape": [1, 2]}]}, "unexpected shape for input 'X' for model 'echo_fp32'. Expected [-1], got [1,2]"),
        ({"inputs": [GOOD | {"shape": [3]}]}, "Shape does not match true shape of 'data' field"),
        ({"inputs": [GOOD | {"shape": [2**62]}]}, "shape [4611686018427387904] of input 'X' is too large"),
        ({"inputs": [GOOD | {"shape": [-1]}]}, "shape"),
        ({"inputs": [GOOD | {"shape": [2.0]}]}, "shape"),
        ({"inputs": [GOOD | {"shape": ["2"]}]}, "shape"),
        ({"inputs": [GOOD | {"shape": [2**64]}]}, "shape"),
        ({"inputs": [GOOD | {"shape": None}]}, "shape"),
        ({"inputs": [GOOD | {"name": 7}]}, "name"),
        ({"inputs": [GOOD | {"data": None}]}, "'data' of input 'X'"),
        ({"inputs": [GOOD | {"parameters": 1}]}, "parameters"),
        ({"inputs": [GOOD | {"parameters": {"binary_data_size": 8}}]}, "But set 'data' 'binary_data_size'"),
        ({"inputs": {"X": GOOD}}, "inputs"),
        ({"inputs": [GOOD], "outputs": {}}, "outputs"),
        ({"inputs": [GOOD], "outputs": [{}]}, "name"),
        ({"inputs": [GOOD], "outputs": [{"name": "Z"}]}, "unexpected inference output 'Z' for model 'echo_fp32'"),
        ({"inputs": [GOOD], "outputs": [{"name": "Y"}, {"name": "Y"}]}, "output 'Y' already exists in request"),
        ({"inputs": [GOOD], "outputs": [{"name": "Y", "parameters": {"binary_data": 1}}]}, "'binary_data' of output 'Y'"),
        ({"inputs": [GOOD], "outputs": [{"name": "Y", "parameters": {"classification": -1}}]}, "'classification' of output 'Y'"),
        ({"inputs": [GOOD], "outputs": [{"name": "Y", "parameters": {"classification": True}}]}, "'classification' of output 'Y'"),
        ({"inputs": [GOOD], "parameters": {"a": None}}, "parameter 'a' has invalid type"),
        ({"inputs": [GOOD], "parameters": {"a": [1]}}, "parameter 'a' has invalid type"),
        ({"inputs": [GOOD], "parameters": {"triton_x": 1}}, "parameter keys starting with 'triton_' are reserved"),
        ({"inputs": [GOOD], "parameters": {"binary_data_output": "yes"}}, "'binary_data_output' must be a boolean"),
        ({"inputs": [GOOD], "id": 7}, "id"),
        ([], ""),
        ({"inputs": [x([1.5], "BF16")]}, "data-type is 'BF16'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(body, message):
    """A bad request is a 400 whose text names the field, close to Triton's where Triton has one."""
    assert message in refused(echo_spec("FP32"), request(json.dumps(body)))


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_floats_do_not_come_in_json(datatype):
    """FP16 and BF16 in JSON are refused with the hint at binary data."""
    assert refused(ANY, {"inputs": [x([1.5], datatype)]}) == (
        f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input X"
    )


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[1]", b'"inputs"', b"\xff\xfe", b'{"inputs": [}'])
def test_a_body_that_is_no_request_is_a_400(body):
    """An empty body, broken JSON and JSON that is no object are refused."""
    assert refused(ANY, request(body))


def test_parameters_reach_the_model():
    """Booleans, numbers and strings reach the model; how the response is wanted does not."""
    given = {"a": 1, "b": "x", "c": True, "d": 0.5, "binary_data_output": True}
    payload, wanted = ask(ANY, {"inputs": [x([1])], "parameters": given})
    assert payload.parameters == {"a": 1, "b": "x", "c": True, "d": 0.5}
    assert wanted == v2.Wanted(binary=True)


def test_a_streaming_model_cannot_infer():
    """A model that may answer several times is a 501 on infer, with Triton's text."""
    with pytest.raises(NotImplementedHere, match="decoupled transaction policy") as caught:
        ask(COUNT, {"inputs": []})
    assert caught.value.status == 501


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_shared_memory_is_not_implemented(side):
    """Tensors in shared memory are a 501 that names the tensor."""
    region = {"parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}}
    body = {"inputs": [x([1])], "outputs": [{"name": "Y"}]}
    body[side][0] |= region
    if side == "inputs":
        del body["inputs"][0]["data"]
    with pytest.raises(NotImplementedHere, match=r"'shared_memory_region' of (input 'X'|output 'Y')"):
        ask(ANY, body)


def test_long_data_is_like_short_data():
    """Thousands of elements, flat and nested, give what few give: values, refusals and their index."""
    data = [i * 0.5 for i in range(6000)]
    for shown in (data, [data[:3000], data[3000:]]):
        payload, _ = ask(ANY, {"inputs": [x(shown, "FP32", [2, 3000])]})
        np.testing.assert_array_equal(payload.value["X"], np.array(data, "f4").reshape(2, 3000))
        assert payload.value["X"].dtype == np.float32
    payload, _ = ask(ANY, {"inputs": [x([2**53 + 1] * 6000, "INT64")]})
    assert set(payload.value["X"].tolist()) == {2**53 + 1}
    assert payload.value["X"].flags.writeable
    assert "element 5999, 256, is out of range for UINT8" in refused(ANY, {"inputs": [x([0] * 5999 + [256], "UINT8")]})
    assert "'X'" in refused(ANY, {"inputs": [x([0] * 5999 + [1.0], "UINT8")]})
    assert "'X'" in refused(ANY, {"inputs": [x([0] * 5999 + [None], "FP32")]})
    assert "'X'" in refused(ANY, {"inputs": [x([0.5] * 5999 + [True], "FP32")]})
    assert "'X'" in refused(ANY, {"inputs": [x([1] * 6000, "BOOL")]})
    bools, _ = ask(ANY, {"inputs": [x([True, False] * 3000, "BOOL")]})
    assert bools.value["X"].sum() == 3000


# Requests with binary data


def binary(size: int, datatype: str = "FP32", name: str = "X", shape: Any = None) -> dict[str, Any]:
    width = {"BF16": 2, "BYTES": 1}.get(datatype) or DATATYPES[datatype].itemsize
    shape = [size // width] if shape is None else shape
    return {"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}}


def test_binary_and_json_inputs_mix():
    """Binary data is handed out in the inputs' order, past those in JSON."""
    head = {"inputs": [binary(4), x([7]) | {"name": "J"}, binary(2, "UINT8", "Z"), binary(0, "INT32", "E")]}
    payload, _ = v2.decode(with_tail(head, struct.pack("<f", 1.5), b"\1\2"), ANY)
    assert {name: array.tolist() for name, array in payload.value.items()} == {
        "X": [1.5],
        "J": [7],
        "Z": [1, 2],
        "E": [],
    }


def test_binary_inputs_are_aligned_and_writable():
    """Arrays over the body start on a 64-byte boundary where they are first, and can be written to."""
    payload, _ = v2.decode(
        with_tail({"inputs": [binary(400), binary(3, "UINT8", "U"), binary(8, "FP64", "D")]}, bytes(411)), ANY
    )
    assert payload.value["X"].ctypes.data % 64 == 0
    for array in payload.value.values():
        assert array.flags.writeable
        assert array.flags.aligned


def test_bf16_comes_as_float32():
    """BF16 reaches the model as the FP32 of the same value."""
    bits = np.array([1.5, -2.0, math.inf], ml_dtypes.bfloat16).tobytes()
    payload, _ = v2.decode(with_tail({"inputs": [binary(6, "BF16")]}, bits), BFLOAT)
    assert payload.value["X"].dtype == np.float32
    assert payload.value["X"].tolist() == [1.5, -2.0, math.inf]


@pytest.mark.parametrize("length", ["x", "", "-1", "+5", "1.0", "0x10", "5 ", "1" * 30, "100000", "99", "\u00b2"])
def test_a_bad_length_of_the_json_is_refused(length):
    """A header that is no number, or more than the body has, is a 400 that names it."""
    text = json.dumps({"inputs": [GOOD]})
    incoming = request(text)
    incoming.headers[LENGTH.lower().encode()] = length.encode("latin-1")
    assert "eader" in refused(ANY, incoming)


def test_the_json_may_be_the_whole_body():
    """A length of the JSON that is the body's is taken, one more is not."""
    text = json.dumps({"inputs": [GOOD]})
    assert v2.decode(request(text, str(len(text))), ANY)[0].value["X"].tolist() == [1, 2]
    assert f"in range (0, {len(text)}), got: {len(text) + 1}" in refused(ANY, request(text, str(len(text) + 1)))


@pytest.mark.parametrize(
    ("head", "tail", "message"),
    [
        (binary(8), bytes(7), "unexpected size for input 'X', expecting 1 additional bytes for model 'any'"),
        (binary(8), bytes(9), "unexpected additional input data for model 'any'"),
        (binary(8, shape=[4]), bytes(8), "input byte size mismatch for input 'X' for model 'any'. Expected 16, got 8"),
        (GOOD, bytes(1), "unexpected additional input data for model 'any'"),
        (GOOD | {"parameters": {"binary_data_size": 8}}, bytes(8), "But set 'data' 'binary_data_size'"),
        ({"name": "X", "shape": [2], "datatype": "FP32"}, b"", "But no field is set for input 'X'"),
        (binary(8) | {"parameters": {"binary_data_size": -8}}, bytes(8), "'binary_data_size' of input 'X'"),
        (binary(8) | {"parameters": {"binary_data_size": True}}, bytes(8), "'binary_data_size' of input 'X'"),
        (binary(8) | {"parameters": {"binary_data_size": "8"}}, bytes(8), "'binary_data_size' of input 'X'"),
        (binary(8) | {"parameters": {"binary_data_size": 2**70}}, bytes(8), "unexpected size for input 'X'"),
        (binary(4, shape=[2**62, 4]), bytes(4), "of input 'X' is too large"),
        (binary(5, "BYTES", shape=[1]), b"\2\0\0\0a", "incomplete string data for inference input 'X'"),
    ],
)
def test_binary_data_that_does_not_fit_is_refused(head, tail, message):
    """Sizes that disagree between JSON, body and shape are a 400 that names the input."""
    assert message in refused(ANY, with_tail({"inputs": [head]}, tail))


def test_binary_data_needs_the_header():
    """Without the header the body is JSON alone, and a binary input has no bytes."""
    assert "expecting 8 additional bytes" in refused(ANY, {"inputs": [binary(8)]})


@given(st.binary(max_size=200), st.integers(0, 220))
def test_no_body_is_an_accident(body, length):
    """Any bytes and any length of the JSON are a payload or a refusal, and nothing else is raised."""
    for incoming in (request(body), request(body, str(length))):
        for described in (ANY, ADD, echo_spec("BYTES")):
            with suppress(BadRequest, NotImplementedHere):
                v2.decode(incoming, described)


# Raw requests


@pytest.mark.parametrize(
    ("described", "body", "value"),
    [
        (ADD, np.arange(8, dtype="f4").tobytes(), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (echo_spec("INT8"), b"\1\2\xff", [1, 2, -1]),
        (ModelSpec("m", inputs=(TensorSpec("INT16", (2,), "X"),)), b"\1\0\2\0", [1, 2]),
        (ModelSpec("m", inputs=(TensorSpec("INT16", None, "X"),)), b"\1\0\2\0", [1, 2]),
        (echo_spec("BYTES"), b"any \xff text", [b"any \xff text"]),
        (BFLOAT, np.array([1.5], ml_dtypes.bfloat16).tobytes(), [1.5]),
    ],
)
def test_a_raw_body_is_the_one_input(described, body, value):
    """A JSON length of 0 makes the body the only input, in its shape, and the response binary."""
    payload, wanted = v2.decode(request(body, "0"), described)
    (array,) = payload.value.values()
    assert array.tolist() == value
    assert wanted == v2.Wanted(binary=True)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (TWO, "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'two' model"),
        (ANY, "Raw request must only have 1 input"),
        (spec("m", {"X": ("FP32", (-1, -1))}, {}), "The shape of the raw input 'X' can not be deduced because"),
        (spec("m", {"X": ("BYTES", (2,))}, {}), "For BYTE datatype raw input 'X', the model must have input shape [1]"),
        (spec("m", {"X": ("", (2,))}, {}), "The datatype of the raw input 'X' can not be deduced"),
        (
            spec("m", {"X": ("FP32", (4,))}, {}),
            "input byte size mismatch for input 'X' for model 'm'. Expected 16, got 8",
        ),
        (ADD, "input byte size mismatch for input 'A' for model 'add'. Expected 0, got 8"),
    ],
)
def test_a_raw_body_that_cannot_be_deduced_is_refused(described, message):
    """Two inputs, two variable axes, an open datatype or another size are a 400."""
    assert message in refused(described, request(bytes(8), "0"))


def test_an_empty_raw_body_is_refused():
    """No body is no input, whatever the header says."""
    assert refused(ADD, request(b"", "0")) == "the request body is empty"

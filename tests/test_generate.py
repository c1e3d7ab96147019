"""V2's generate extension: one flat JSON object in, one out."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.errors import BadAnswer, BadRequest, ModelFailed
from prefork.http import Request
from prefork.payload import DATATYPES, Kind, ModelSpec, Payload, TensorSpec
from prefork.protocols.generate import decode_generate, encode_generated, encode_stream_error

ANY = ModelSpec("any")
CHAT = ModelSpec(
    "chat",
    "3",
    inputs=(
        TensorSpec("BYTES", (1,), "text"),
        TensorSpec("BOOL", (1,), "stream", optional=True),
        TensorSpec("FP32", (-1, 2), "bias", optional=True),
    ),
    streams=True,
)


def decode(body: Any, spec: ModelSpec = CHAT) -> tuple[Payload, str]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return decode_generate(Request("POST", "", b"", {}, [text]), spec)


def refused(body: Any, spec: ModelSpec = CHAT) -> str:
    """The text of the 400 that the body gets."""
    with pytest.raises(BadRequest) as caught:
        decode(body, spec)
    return caught.value.message


def encode(answer: Payload, request_id: str = "", **more: Any) -> Any:
    return json.loads(encode_generated(answer, CHAT, request_id, **more))


def test_keys_are_inputs_or_parameters():
    """A key that the model names is a tensor, any other a parameter; the id is returned."""
    payload, request_id = decode({"id": "7", "text": "é", "max_tokens": 5, "temperature": 0.5})
    assert payload.kind is Kind.TENSORS
    assert payload.value["text"].tolist() == ["é".encode()]
    assert payload.parameters == {"max_tokens": 5, "temperature": 0.5}
    assert request_id == "7"
    assert decode({"text": "a"})[1] == ""
    assert decode({"text": "a"})[0].parameters is None


def test_the_members_of_parameters_are_keys():
    """Inside `parameters` stand inputs and parameters as beside it."""
    payload, _ = decode({"text": "a", "parameters": {"stream": True, "max_tokens": 5}})
    assert payload.value["stream"].tolist() == [True]
    assert payload.parameters == {"max_tokens": 5}


@pytest.mark.parametrize(
    ("shape", "value", "expected"),
    [
        ((1,), 3, [3]),
        ((1,), [3], [3]),
        ((-1,), [1, 2, 3], [1, 2, 3]),
        ((-1,), [], []),
        ((-1, 2), [1, 2, 3, 4], [[1, 2], [3, 4]]),
        ((-1, 2), [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ((-1, -1), [1, 2], [[1, 2]]),
        ((), 3, 3),
        (None, 3, [3]),
        (None, [1, 2], [1, 2]),
    ],
)
@pytest.mark.parametrize("datatype", ["INT32", ""])
def test_shapes_come_from_the_metadata(shape, value, expected, datatype):
    """The innermost variable axis takes the elements that there are."""
    spec = ModelSpec("m", inputs=(TensorSpec(datatype, shape, "N"),))
    if shape is None and datatype == "":
        expected = np.atleast_1d(value).tolist()
    assert decode({"N": value}, spec)[0].value["N"].tolist() == expected


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_is_taken(datatype):
    """Numbers become the datatype of the metadata, FP16 and BF16 too, which have no other way in here."""
    value = {"BOOL": True, "BYTES": "a"}.get(datatype, 1)
    spec = ModelSpec("m", inputs=(TensorSpec(datatype, (1,), "X"),))
    assert decode({"X": value}, spec)[0].value["X"].dtype == DATATYPES[datatype]
    bf16 = ModelSpec("m", inputs=(TensorSpec("BF16", (1,), "X"),))
    assert decode({"X": 1.5}, bf16)[0].value["X"].dtype == np.float32


def test_a_model_without_named_inputs_gets_tensors():
    """Without named inputs every key is a tensor whose datatype its value gives; `parameters` stay parameters."""
    body = {"id": "i", "text": "a", "n": 3, "x": [[0.5, 1]], "ok": [True], "parameters": {"seed": 1}}
    payload, request_id = decode(body, ANY)
    shown = {name: (array.dtype.str, array.tolist()) for name, array in payload.value.items()}
    assert shown == {
        "text": ("|O", [b"a"]),
        "n": ("<i8", [3]),
        "x": ("<f8", [[0.5, 1.0]]),
        "ok": ("|b1", [True]),
    }
    assert payload.parameters == {"seed": 1}
    assert request_id == "i"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "missing required input(s) ['text']"),
        (b"", "the request body is empty"),
        (b"{", ""),
        ([1], ""),
        ({"text": "a", "id": 7}, "Unable to parse 'id'"),
        ({"text": "a", "parameters": [1]}, "Unable to parse 'parameters'"),
        ({"text": 7}, "'data' of input 'text': element 0 is an integer; BYTES takes strings"),
        ({"text": None}, "input 'text': element 0 is null"),
        ({"text": ["a", "b"]}, "unexpected shape for input 'text'. Expected [1], got 2 elements"),
        ({"text": []}, "unexpected shape for input 'text'"),
        ({"text": "a", "bias": [1, 2, 3]}, "unexpected shape for input 'bias'. Expected [-1,2], got 3 elements"),
        ({"text": "a", "stream": 1}, "input 'stream': element 0 is an integer; BOOL takes true and false"),
        ({"text": "a", "stop": ["x"]}, "parameter 'stop' has invalid type"),
        ({"text": "a", "parameters": {"triton_x": 1}}, "parameter keys starting with 'triton_' are reserved"),
        ({"text": "a", "parameters": {"text": "b"}}, "input 'text' already exists in request"),
        (b'{"text": "a", "text": "b"}', "input 'text' already exists in request"),
    ],
)
def test_what_is_wrong_is_named(body, message):
    """Missing, doubled and ill-typed inputs and parameters are a 400 that names them."""
    assert message in refused(body)


def test_a_name_that_occurs_elsewhere_is_not_doubled():
    """An input's name as a value, or as a key further in, is no second input."""
    payload, _ = decode(b'{"text": "text", "seed": 1, "seed": 2}')
    assert payload.value["text"].tolist() == [b"text"]
    assert payload.parameters == {"seed": 2}


@pytest.mark.parametrize("value", [None, {"a": 1}, [[1], [2, 3]], [1, "a"], 2**70])
def test_what_numpy_makes_no_tensor_of_is_refused(value):
    """For a model without named inputs a value that is no tensor is a 400 that names its key."""
    assert "'x'" in refused({"x": value}, ANY)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3), st.lists, max_leaves=6)
)
def test_no_value_is_an_accident(value):
    """Any JSON value of an input is taken or refused with a BadRequest, and nothing else is raised."""
    spec = ModelSpec("m", inputs=tuple(TensorSpec(name, (-1, 1), name) for name in (*DATATYPES, "BF16")))
    for name in (*DATATYPES, "BF16", "id", "parameters"):
        for described in (spec, ANY):
            with suppress(BadRequest):
                decode({name: value}, described)


def test_one_element_is_shown_bare():
    """An output of one element is that element, none or several are a flat list; BYTES are text."""
    answer = Payload(
        Kind.TENSORS,
        {
            "token": np.array([["é".encode()]], dtype=object),
            "ids": np.array([[1, 2], [3, 4]], "i4"),
            "none": np.empty((0, 2), "f4"),
            "score": np.array(0.1, "f4"),
        },
    )
    assert encode(answer, "7") == {
        "id": "7",
        "token": "é",
        "ids": [1, 2, 3, 4],
        "none": [],
        "score": 0.10000000149011612,
        "model_name": "chat",
        "model_version": "3",
    }
    assert list(encode(answer)) == ["token", "ids", "none", "score", "model_name", "model_version"]


def test_half_floats_are_shown_as_numbers():
    """FP16 and BF16 outputs are numbers: there is no binary data to ask for here."""
    answer = Payload(Kind.TENSORS, {"a": np.array([1.5], "f2"), "b": np.array([0.5, 2], ml_dtypes.bfloat16)})
    shown = encode(answer)
    assert (shown["a"], shown["b"]) == (1.5, [0.5, 2.0])


def test_other_answers_are_named_after_the_method():
    """A text is one output named after the method, an object of scalars is its own outputs."""
    assert encode(Payload(Kind.TEXT, "token"))["predict"] == "token"
    assert encode(Payload(Kind.JSON, {"token": "a", "n": 1}))["n"] == 1
    assert encode(Payload(Kind.TENSOR, np.array([1, 2])))["predict"] == [1, 2]


def test_nan_is_null_unless_asked_for():
    """NaN follows the server's setting."""
    answer = Payload(Kind.TENSORS, {"x": np.array([np.nan])})
    assert encode(answer)["x"] is None
    assert np.isnan(encode(answer, nan="literal")["x"])


def test_outputs_that_json_cannot_carry():
    """Bytes that are no text are refused, and arrays without a datatype are the model's fault."""
    with pytest.raises(BadRequest, match="output x"):
        encode(Payload(Kind.TENSORS, {"x": np.array([b"\xff"], dtype=object)}))
    with pytest.raises(BadAnswer, match="complex128"):
        encode(Payload(Kind.TENSORS, {"x": np.array([1j])}))


def test_a_late_error_is_one_more_object():
    """A failure behind the first event is `{"error": message}`."""
    assert encode_stream_error(ModelFailed('ValueError: "x"')) == b'{"error":"ValueError: \\"x\\""}'


@given(
    st.text(max_size=8), st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=6)
)
def test_what_is_generated_can_be_sent_back(text, bias):
    """Outputs that are named like inputs come back as the same tensors."""
    bias = bias[: len(bias) // 2 * 2]
    answer = Payload(Kind.TENSORS, {"text": np.array([text], dtype=object), "bias": np.array(bias, "f4")})
    shown = encode(answer)
    payload, _ = decode({"text": shown["text"], "bias": shown["bias"]})
    assert payload.value["text"].tolist() == [text.encode()]
    assert payload.value["bias"].tolist() == np.array(bias, "f4").reshape(-1, 2).tolist()

"""V2's responses and metadata, and whole exchanges: what a real Triton answered, and tensors there and back."""

from __future__ import annotations

import base64
import gzip
import json
import math
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prefork.errors import BadAnswer, BadRequest, MethodNotAllowed, NotFound
from prefork.http import Request, Response
from prefork.payload import DATATYPES, Kind, ModelSpec, Payload, TensorSpec
from prefork.protocols import tensors, v2
from v2_messages import (
    ADD,
    ANY,
    BFLOAT,
    LENGTH,
    MODELS,
    answer,
    body_of,
    echo_spec,
    json_of,
    parts,
    request,
    serve,
    typed,
    with_tail,
    x,
)

BITS = DATATYPES | {"BF16": np.dtype(ml_dtypes.bfloat16)}
VECTORS = Path(__file__).parent / "vectors" / "v2.jsonl"


# What Triton answered


def recorded() -> list[Any]:
    """The recorded lines that are this floor's: no routing, no repository, no compression but one gzip body."""
    groups = {"infer", "bad", "dtype", "binary", "two", "classification", "stream", "generate"}
    lines = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
    mine = [line for line in lines if line["id"].split("/")[0] in groups or line["id"] == "compression/gzip-in"]
    return [pytest.param(line, id=line["id"]) for line in mine]


def sent(line: dict[str, Any]) -> bytes:
    body = line["body"]
    return base64.b64decode(body["base64"]) if "base64" in body else body["text"].encode()


def replay(line: dict[str, Any], nan: str = "null") -> Response:
    asked = line["request"]
    body = gzip.decompress(sent(asked)) if "Content-Encoding" in asked["headers"] else sent(asked)
    *_, name, endpoint = asked["path"].split("/")
    return serve(name, endpoint, request(body, asked["headers"].get(LENGTH)), nan)


@pytest.mark.parametrize("line", recorded())
def test_recorded_answers(line):
    """A request recorded with Triton gets its answer: JSON as JSON with integers strict, binary data byte for byte."""
    expected = line["response"]
    response = replay(line)
    status = (line.get("prefork") or {}).get("status", expected["status"])
    assert response.status == status
    if status != 200:
        assert response.content_type == "application/json"
        assert list(json_of(response)) == ["error"]
        assert json_of(response)["error"]
        return
    assert response.content_type == expected["headers"]["content-type"]
    assert dict(response.headers).get(LENGTH) == expected["headers"].get("inference-header-content-length")
    if response.content_type != "application/json" or line["id"] == "generate/one":
        assert body_of(response) == sent(expected)
    else:
        compare(line["id"], json_of(response), sent(expected))


def compare(name: str, found: Any, expected: bytes) -> None:
    wanted = json.loads(expected, parse_constant={"NaN": None}.__getitem__)
    if name == "two/order":
        wanted["outputs"].reverse()
    assert typed(found) == typed(wanted)


def test_all_recorded_groups_are_replayed():
    """The recorded lines are there: a file that lost some would pass otherwise."""
    assert len(recorded()) == 84


def test_the_recorded_nan_is_one_if_asked_for():
    """With `nan: literal` a NaN is written as Triton writes it."""
    (line,) = [param.values[0] for param in recorded() if param.id == "infer/nan"]
    assert body_of(replay(line, "literal")).replace(b" ", b"") == sent(line["response"])


@pytest.mark.parametrize("name", ["add", "count", "echo_bytes"])
def test_recorded_metadata(name):
    """Metadata is Triton's for the same model."""
    lines = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
    (expected,) = [line["response"] for line in lines if line["id"] == f"model/metadata-{name}"]
    response = v2.encode_metadata(MODELS[name][0])
    assert json_of(response) == json.loads(sent(expected))
    assert response.content_type == "application/json"


# Responses


def encoded(value: Any, kind: Kind = Kind.TENSORS, wanted: v2.Wanted = v2.Wanted(), described: ModelSpec = ANY) -> Any:  # noqa: B008
    return json_of(v2.encode(Payload(kind, value), wanted, described))


def test_a_response_has_the_models_name_and_version():
    """The id is there only if the request had one, and the version is a string."""
    body = encoded({"Y": np.array([1], "i4")}, described=ModelSpec("m", "12"))
    output = {"name": "Y", "datatype": "INT32", "shape": [1], "data": [1]}
    assert body == {"model_name": "m", "model_version": "12", "outputs": [output]}
    assert list(encoded({}, wanted=v2.Wanted("i"))) == ["id", "model_name", "model_version", "outputs"]


def test_the_models_parameters_are_shown():
    """Parameters that the model answers are the response's."""
    response = v2.encode(Payload(Kind.TENSORS, {}, parameters={"a": 1}), v2.Wanted(), ANY)
    assert json_of(response)["parameters"] == {"a": 1}


def test_outputs_come_in_the_order_asked_for():
    """Only the outputs that were asked for are answered, in that order."""
    found = {"A": np.zeros(1), "B": np.zeros(1), "C": np.zeros(1)}
    wanted = v2.Wanted(outputs=(v2.WantedOutput("C"), v2.WantedOutput("A")))
    assert [output["name"] for output in encoded(found, wanted=wanted)["outputs"]] == ["C", "A"]
    assert [output["name"] for output in encoded(found)["outputs"]] == ["A", "B", "C"]


def test_an_output_that_there_is_not():
    """An output that the model does not give is the client's mistake, or the model's if it declares it."""
    wanted = v2.Wanted(outputs=(v2.WantedOutput("B"),))
    with pytest.raises(BadRequest, match="unexpected inference output 'B' for model 'any'"):
        encoded({"Y": np.zeros(1)}, wanted=wanted)
    with pytest.raises(BadAnswer, match="model 'add' did not give the output 'B'"):
        encoded({"Y": np.zeros(1)}, wanted=wanted, described=ADD)


def test_an_output_that_is_not_declared_is_answered():
    """What the model gives is answered, also what its metadata does not name."""
    assert encoded({"B": np.zeros(1), "more": np.zeros(1)}, described=ADD)["outputs"][1]["name"] == "more"


def test_nan_is_null_unless_asked_for():
    """NaN and infinity are null, or literals with `nan: literal`, in few and in many elements."""
    for repeat in (1, 100):
        payload = Payload(Kind.TENSORS, {"Y": np.array([math.nan, math.inf, 1] * repeat, "f4")})
        body = body_of(v2.encode(payload, v2.Wanted(), ANY))
        assert json.loads(body)["outputs"][0]["data"] == [None, None, 1.0] * repeat
        literal = body_of(v2.encode(payload, v2.Wanted(), ANY, "literal"))
        assert str(json.loads(literal)["outputs"][0]["data"][:3]) == "[nan, inf, 1.0]"


def test_binary_outputs_follow_the_json():
    """Binary outputs stand behind the JSON in order, each sent from the array's own memory."""
    first, second = np.arange(4, dtype="f4").reshape(2, 2), np.array([b"ab", b"\xff"], dtype=object)
    wanted = v2.Wanted(
        outputs=(v2.WantedOutput("A", binary=True), v2.WantedOutput("J"), v2.WantedOutput("B", binary=True))
    )
    response = v2.encode(answer(B=second, A=first, J=np.array([5])), wanted, ANY)
    head, tail = parts(response)
    assert response.content_type == "application/octet-stream"
    assert head["outputs"] == [
        {"name": "A", "datatype": "FP32", "shape": [2, 2], "parameters": {"binary_data_size": 16}},
        {"name": "J", "datatype": "INT64", "shape": [1], "data": [5]},
        {"name": "B", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 11}},
    ]
    assert tail == first.tobytes() + b"\2\0\0\0ab\1\0\0\0\xff"
    assert np.shares_memory(np.frombuffer(response.body[1], "u1"), first)


def test_empty_binary_outputs_leave_a_json_response():
    """A response without a byte of binary data is JSON and has no length header."""
    response = v2.encode(answer(Y=np.empty((0, 2))), v2.Wanted(binary=True), ANY)
    assert response.content_type == "application/json"
    assert response.headers == []
    assert json_of(response)["outputs"][0]["parameters"] == {"binary_data_size": 0}


def test_listed_outputs_say_themselves_what_they_are():
    """An output that is listed without `binary_data` is JSON, also where all are wanted as binary data."""
    head = {"inputs": [x([1])], "parameters": {"binary_data_output": True}, "outputs": [{"name": "Y"}]}
    response = serve("echo_fp32", "infer", request(head))
    assert json_of(response)["outputs"][0]["data"] == [1.0]
    del head["outputs"]
    assert parts(serve("echo_fp32", "infer", request(head)))[1] == struct.pack("<f", 1)


@pytest.mark.parametrize(
    ("array", "datatype"),
    [(np.array([1.5], "f2"), "FP16"), (np.array([1.5], ml_dtypes.bfloat16), "BF16"), (np.array([1.5], "f4"), "BF16")],
)
def test_half_floats_do_not_go_into_json(array, datatype):
    """FP16 and BF16 (an extension's array, or FP32 that the model declares as BF16) are refused in JSON, sent as binary."""
    described = BFLOAT if datatype == "BF16" else echo_spec("FP16")
    with pytest.raises(BadRequest, match=f"sending {datatype} data via JSON is not supported.* for output Y"):
        v2.encode(answer(Y=array), v2.Wanted(), described)
    head, tail = parts(v2.encode(answer(Y=array), v2.Wanted(binary=True), described))
    assert head["outputs"][0]["datatype"] == datatype
    assert tail == array.astype(ml_dtypes.bfloat16 if datatype == "BF16" else "f2").tobytes()


@pytest.mark.parametrize(
    "array",
    [np.array([1j]), np.array(["2024-01-01"], "M8[D]"), np.array([1], "m8[s]"), np.zeros(1, [("a", "i4")])],
    ids=lambda array: array.dtype.name,
)
def test_arrays_that_v2_has_no_datatype_for_are_named(array):
    """Complex numbers, times and records are a 500 that names their dtype."""
    with pytest.raises(BadAnswer, match=r"output 'Y' is an array of .*(complex128|datetime64|timedelta64|i4)"):
        encoded({"Y": array})


def test_one_tensor_is_named_after_the_method():
    """A single array becomes an output that is called after the method, its columns' names left out."""
    payload = Payload(Kind.TENSOR, np.array([[1, 2]]), "transform_input", names=["a", "b"])
    outputs = json_of(v2.encode(payload, v2.Wanted(), ANY))["outputs"]
    assert outputs == [{"name": "transform_input", "datatype": "INT64", "shape": [1, 2], "data": [1, 2]}]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.TEXT, "é", "é"),
        (Kind.BYTES, b"raw", "raw"),
        (Kind.JSON, [1, {"a": None}], '[1,{"a":null}]'),
        (Kind.JSON, {"a": [1, 2], "b": None}, '{"a":[1,2],"b":null}'),
        (Kind.RAW, {"data": {"ndarray": [1]}}, '{"data":{"ndarray":[1]}}'),
        (Kind.JSON, {"a": [[1], [2, 3]]}, '{"a":[[1],[2,3]]}'),
        (Kind.JSON, {}, "{}"),
    ],
)
def test_what_is_no_tensor_is_one_text(kind, value, text):
    """Texts, bytes and JSON that is no set of tensors are one BYTES element named after the method."""
    expected = {"name": "predict", "datatype": "BYTES", "shape": [1], "data": [text]}
    assert encoded(value, kind)["outputs"] == [expected]


@pytest.mark.parametrize("kind", [Kind.JSON, Kind.RAW])
def test_an_object_of_tensors_is_named_outputs(kind):
    """A JSON object whose values all are tensors is outputs by name; a scalar has one element."""
    outputs = encoded({"label": "cat", "score": 0.5, "box": [[1, 2], [3, 4]], "ok": True, "a": np.array(["x"])}, kind)[
        "outputs"
    ]
    shown = [(output["name"], output["datatype"], output["shape"], output["data"]) for output in outputs]
    assert shown == [
        ("label", "BYTES", [1], ["cat"]),
        ("score", "FP64", [1], [0.5]),
        ("box", "INT64", [2, 2], [1, 2, 3, 4]),
        ("ok", "BOOL", [1], [True]),
        ("a", "BYTES", [1], ["x"]),
    ]


def test_an_answer_of_another_kind_is_the_models_fault():
    """Feedback is no answer."""
    with pytest.raises(BadAnswer, match="FEEDBACK"):
        encoded(None, Kind.FEEDBACK)


def test_errors_are_one_sentence():
    """Every failure is `{"error": message}` in JSON with its own status and headers."""
    response = v2.encode_error(NotFound("no such model"))
    assert (response.status, response.content_type, json_of(response)) == (
        404,
        "application/json",
        {"error": "no such model"},
    )
    refusal = v2.encode_error(MethodNotAllowed("GET", ["POST"]))
    assert (refusal.status, dict(refusal.headers)) == (405, {"Allow": "POST"})


def test_metadata_of_a_model_that_says_nothing():
    """A model without named inputs and outputs shows none; a tensor without datatype or shape shows FP64 and [-1]."""
    assert json_of(v2.encode_metadata(ANY)) == {
        "name": "any", "versions": ["1"], "platform": "python", "inputs": [], "outputs": [],
    }  # fmt: skip
    named = ModelSpec("m", inputs=(TensorSpec(name="X"),), outputs=(TensorSpec("BYTES", (1,), "Y"),))
    body = json_of(v2.encode_metadata(named))
    assert body["inputs"] == [{"name": "X", "datatype": "FP64", "shape": [-1]}]
    assert body["outputs"] == [{"name": "Y", "datatype": "BYTES", "shape": [1]}]


def test_server_metadata():
    """The server tells its name, version and extensions."""
    response = v2.encode_server("prefork", "0.1.0", ("binary_tensor_data",))
    assert json_of(response) == {"name": "prefork", "version": "0.1.0", "extensions": ["binary_tensor_data"]}


# There and back


@st.composite
def named_arrays(draw):
    """Two tensors of any datatype with the datatypes' names."""
    found = {}
    for name in ("A", "B"):
        datatype = draw(st.sampled_from(list(DATATYPES)))
        shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        if datatype == "BYTES":
            size = math.prod(shape)
            elements = draw(st.lists(st.text(max_size=4).map(str.encode), min_size=size, max_size=size))
            found[name] = datatype, tensors.object_array(elements).reshape(shape)
        else:
            found[name] = datatype, draw(hnp.arrays(DATATYPES[datatype], shape))
    return found


def as_request(outputs: list[dict[str, Any]], tail: bytes) -> Request:
    """A response's outputs as a request's inputs."""
    return with_tail({"inputs": outputs}, tail)


@given(named_arrays(), st.booleans())
def test_outputs_can_be_sent_back(found, all_binary):
    """What a response carries, in JSON and in binary data, is read back as the same tensors."""
    wanted = tuple(v2.WantedOutput(name, all_binary or datatype == "FP16") for name, (datatype, _) in found.items())
    response = v2.encode(
        answer(**{name: array for name, (_, array) in found.items()}), v2.Wanted(outputs=wanted), ANY, "literal"
    )
    head, tail = parts(response) if response.headers else (json_of(response), b"")
    payload, _ = v2.decode(as_request(head["outputs"], tail), ANY)
    for name, (_, array) in found.items():
        back = payload.value[name]
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("datatype", "binary"),
    [(name, binary) for name in BITS for binary in (True, False) if binary or name not in {"FP16", "BF16"}],
)
def test_tritonclient_is_understood(datatype, binary):
    """What Triton's Python client sends is decoded, and it reads the answer; half floats have no JSON."""
    import tritonclient.http as client

    array = np.array(["a", "é"], dtype=object) if datatype == "BYTES" else np.array([1, 0], BITS.get(datatype))
    name = "bfloat" if datatype == "BF16" else f"echo_{datatype.lower()}"
    asked = client.InferInput("X", [2], datatype)
    asked.set_data_from_numpy(array, binary_data=binary)
    wanted = client.InferRequestedOutput("Y", binary_data=binary)
    body, size = client.InferenceServerClient.generate_request_body([asked], outputs=[wanted], request_id="7")
    response = serve(name, "infer", request(body, None if size is None else str(size)))
    length = dict(response.headers).get(LENGTH)
    result = client.InferenceServerClient.parse_response_body(body_of(response), header_length=length and int(length))
    found = result.as_numpy("Y").tolist()
    assert [x.decode() if isinstance(x, bytes) else x for x in found] == array.tolist()
    assert (result.get_response()["id"], length is not None) == ("7", binary)

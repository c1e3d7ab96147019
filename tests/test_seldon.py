"""Seldon's protocol: what payload a message is, and the answers of the recorded requests."""

from __future__ import annotations

import json as python_json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefork.errors import BadRequest, PreforkError
from prefork.http import Response
from prefork.payload import Kind, Payload
from prefork.protocols import seldon
from seldon_messages import (
    FEEDBACK,
    HERE,
    LONG,
    answer_of,
    decode,
    request_of,
)
from vectors import same_json

VECTORS = Path(__file__).parent / "vectors" / "seldon_v1.jsonl"


METHODS = {
    "/predict": "predict",
    "/api/v1.0/predictions": "predict",
    "/api/v0.1/predictions": "predict",
    "/transform-input": "transform_input",
    "/aggregate": "aggregate",
    "/send-feedback": "send_feedback",
    "/api/v1.0/feedback": "send_feedback",
}


def vectors() -> list[dict[str, Any]]:
    """The recorded lines whose model is no more than an expression."""
    lines = [python_json.loads(line) for line in VECTORS.read_text().splitlines()]
    return [
        line
        for line in lines
        if METHODS.get(line["request"]["path"].partition("?")[0])
        and set(line["model"]) <= {"predict", "aggregate", "send_feedback", "transform_input", "class_names", "tags"}
        and not line["id"].startswith(("returns/int", "returns/set", "call/tags-bad", "call/class-names-1d"))
        and not any(str(hook).startswith("raise") for hook in line["model"].values())
        and line["id"] != "kind/json-number"
    ]


def run(line: dict[str, Any]) -> Response:
    """The response to a recorded request, with the model's expressions worked out here."""
    asked, model = line["request"], line["model"]
    path, _, query = asked["path"].partition("?")
    method = METHODS[path]
    request = request_of(asked["body"] or b"", asked["content_type"] or "", query, asked["method"])
    try:
        payload = seldon.decode(request, method)
        result = evaluate(model.get(method, "X if X is not None else []"), payload)
        names = python_json.loads(model["class_names"]) if "class_names" in model else None
        tags = eval(model.get("tags", "None"))
        if hasattr(result, "tags"):
            return seldon.encode(
                answer_of(result.data, method, tags=result.tags, metrics=result.metrics), payload, HERE
            )
        return seldon.encode(answer_of(result, method, names=names, tags=tags), payload, HERE)
    except PreforkError as error:
        return seldon.encode_error(error)


class SeldonResponse(msgspec.Struct):
    data: Any
    tags: Any = None
    metrics: Any = None


def evaluate(expression: str, payload: Payload) -> Any:
    values: dict[str, Any] = {"np": np, "SeldonResponse": SeldonResponse}
    if payload.kind is Kind.FEEDBACK:
        fields = msgspec.structs.asdict(payload.value)
        return eval(expression, values | fields) if expression != "X if X is not None else []" else None
    if payload.kind is Kind.MANY:
        return eval(expression, values | {"Xs": [part.value for part in payload.value]})
    return eval(expression, values | {"X": payload.value, "names": payload.names or [], "meta": payload.meta})


@pytest.mark.parametrize("line", vectors(), ids=lambda line: line["id"])
def test_recorded_answers(line):
    """What the Seldon wrapper answered, or what the line says that Prefork answers instead, is answered."""
    response = run(line)
    ours = line.get("prefork")
    wanted = dict(line["response"])
    if isinstance(ours, dict):
        wanted["status"] = ours.get("status", 200)
        wanted["body"] = python_json.dumps(ours["body"]) if "body" in ours else None
    assert response.status == wanted["status"]
    text = b"".join(response.body)
    if wanted["status"] != 200:
        assert set(python_json.loads(text)["status"]) == {"code", "info", "reason", "status"}
    else:
        assert same_json(text, wanted["body"], line["id"])
        assert list(python_json.loads(text)) == sorted(python_json.loads(text))


def test_most_recorded_lines_are_run():
    """The lines that are run here are most of those about messages."""
    assert len(vectors()) >= 70


@pytest.mark.parametrize("padding", ["", LONG])
@pytest.mark.parametrize(
    ("message", "dtype", "value"),
    [
        ({"data": {"ndarray": [[1, 2]]}}, "i8", [[1, 2]]),
        ({"data": {"ndarray": [[1, 2.5]]}}, "f8", [[1, 2.5]]),
        ({"data": {"ndarray": [["a", 1]]}}, "<U21", [["a", "1"]]),
        ({"data": {"ndarray": 3.0}}, "f8", 3.0),
        ({"data": {"ndarray": [], "names": None}}, "f8", []),
        ({"data": {}}, "f8", []),
        ({"data": {"tensor": {"shape": [2, 1], "values": [1, 2]}}}, "i8", [[1], [2]]),
        ({"data": {"tensor": {"shape": [-1], "values": [[1.5], [2]]}}}, "f8", [1.5, 2]),
        ({"data": {"tensor": {"shape": [0, 3], "values": []}}}, "f8", []),
        ({"data": {"tensor": {"shape": [], "values": [1]}}}, "i8", 1),
        ({"data": {"tensor": {"shape": [1], "values": [1]}, "ndarray": [2]}}, "i8", [1]),
        ({"data": {"ndarray": [1]}, "jsonData": 2, "strData": "x", "binData": "MTIz"}, "i8", [1]),
    ],
)
def test_data_is_an_array(message, dtype, value, padding):
    """`data` is an array of numpy's inference, writable, as tensor before ndarray, and counts before anything else."""
    payload = decode(python_json.dumps(message) + padding)
    assert payload.kind is Kind.TENSOR
    assert payload.value.dtype == np.dtype(dtype)
    assert payload.value.tolist() == value
    assert payload.value.flags.writeable
    assert payload.names is None


@pytest.mark.parametrize(
    ("message", "kind", "value"),
    [
        ({"jsonData": {"a": [1, 2.5, None]}, "strData": "x"}, Kind.JSON, {"a": [1, 2.5, None]}),
        ({"jsonData": None}, Kind.JSON, None),
        ({"strData": "x", "binData": "MTIz", "foo": 1}, Kind.TEXT, "x"),
        ({"binData": "MTIz"}, Kind.BYTES, b"123"),
        ({"binData": "!!!"}, Kind.BYTES, b""),
        ({"strData": "x", "meta": None, "status": "SUCCESS"}, Kind.TEXT, "x"),
    ],
)
def test_other_messages(message, kind, value):
    """After `data` comes `jsonData`, then `strData`, then `binData`; unknown fields and a status are passed over."""
    payload = decode(message)
    assert (payload.kind, payload.value, payload.names, payload.meta) == (kind, value, None, None)


@pytest.mark.parametrize("padding", ["", LONG])
@pytest.mark.parametrize(
    ("message", "names"),
    [
        ({}, "Invalid request data type: {}"),
        ({"customData": {"a": 1}}, "Invalid request data type: .*customData"),
        ({"data": None}, r"\$\.data"),
        ({"data": "ndarray"}, r"\$\.data"),
        ({"data": [1]}, r"\$\.data"),
        ({"data": {"names": "a"}}, r"\$\.data\.names"),
        ({"data": {"ndarray": None}}, r"data\.ndarray must be a list, got null"),
        ({"data": {"ndarray": {"a": 1}}}, r"data\.ndarray must be a list, got an object"),
        ({"data": {"ndarray": [[1], [2, 3]]}}, r"data\.ndarray is ragged"),
        ({"data": {"tftensor": {}}}, "TensorFlow"),
        ({"data": {"tensor": {"values": [1]}}}, r"data\.tensor\.shape"),
        ({"data": {"tensor": {"shape": [1]}}}, r"data\.tensor\.values"),
        ({"data": {"tensor": {"shape": [1], "values": None}}}, r"data\.tensor\.values"),
        ({"data": {"tensor": {"shape": [3, 2], "values": [1, 2]}}}, r"data\.tensor\.shape \[3, 2\] .* which are 2"),
        ({"data": {"tensor": {"shape": [-2], "values": [1, 2]}}}, r"data\.tensor\.shape"),
        ({"data": {"tensor": {"shape": [-1, -1], "values": [1, 2]}}}, r"data\.tensor\.shape"),
        ({"data": {"tensor": {"shape": [2**70], "values": [1, 2]}}}, r"data\.tensor\.shape"),
        ({"data": {"tensor": {"shape": [1] * 100 + [2], "values": [1, 2]}}}, r"data\.tensor\.shape"),
        ({"data": {"tensor": {"shape": "2", "values": [1, 2]}}}, r"\$\.data\.tensor\.shape"),
        ({"data": {"tensor": {"shape": [1.5], "values": [1, 2]}}}, r"\$\.data\.tensor\.shape"),
        ({"strData": 1}, r"\$\.strData"),
        ({"binData": "MTI"}, "binData"),
        ({"binData": "é"}, "binData"),
        ({"strData": "x", "meta": "x"}, "meta must be an object, got str"),
        ({"strData": "x", "meta": {"tags": []}}, r"meta\.tags must be an object, got list"),
        ({"strData": "x", "meta": {"metrics": {}}}, r"meta\.metrics"),
        ({"strData": "x", "meta": {"requestPath": 1}}, r"meta\.requestPath"),
    ],
)
def test_bad_messages_name_the_field(message, names, padding):
    """What is wrong in a message is a 400 that names the field."""
    with pytest.raises(BadRequest, match=names):
        decode(python_json.dumps(message) + padding)


def test_what_is_quoted_is_bounded():
    """A message that is nothing known is quoted, 200 characters of it."""
    with pytest.raises(BadRequest, match="Invalid request data type") as caught:
        decode({"customData": "x" * 10_000})
    assert len(caught.value.message) < 250


def test_names_and_meta():
    """The payload has the columns' names and the request's own meta object, unknown fields and all."""
    meta = {"puid": "1", "tags": {"a": 1}, "routing": {"x": 1}, "more": [1]}
    payload = decode({"data": {"names": ["a", 1], "ndarray": [[1, 2]]}, "meta": meta}, "transform_input")
    assert (payload.names, payload.meta, payload.method) == (["a", 1], meta, "transform_input")


def test_depth_is_bounded():
    """Nesting deeper than max_depth is a 400 everywhere in a message."""
    deep = "[" * 60 + "]" * 60
    for body in (
        f'{{"jsonData":{deep}}}',
        f'{{"data":{{"ndarray":{deep}}}}}',
        f'{{"strData":"x","meta":{{"a":{deep}}}}}',
    ):
        for padding in ("", LONG):
            with pytest.raises(BadRequest, match="deeper than 50"):
                decode(body + padding, max_depth=50)
            with pytest.raises(BadRequest, match="deeper than 50"):
                decode(body + padding, max_depth=50, raw=True)


@pytest.mark.parametrize("wrap", [lambda messages: messages, lambda messages: {"seldonMessages": messages}])
@pytest.mark.parametrize("padding", ["", LONG])
def test_many_messages(wrap, padding):
    """Aggregate takes a list of messages, bare or as seldonMessages, and each is a payload of its own."""
    messages = [{"data": {"names": ["a"], "ndarray": [[1]]}, "meta": {"puid": "p"}}, {"strData": "x"}]
    payload = decode(python_json.dumps(wrap(messages)) + padding, "aggregate")
    assert payload.kind is Kind.MANY
    assert [part.kind for part in payload.value] == [Kind.TENSOR, Kind.TEXT]
    assert (payload.value[0].names, payload.value[0].meta) == (["a"], {"puid": "p"})


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ([], "seldonMessages is empty"),
        ({"seldonMessages": []}, "seldonMessages is empty"),
        ({}, "seldonMessages"),
        ("x", "Expected"),
        ([{"strData": "x"}, {}], r"seldonMessages\[1\]: Invalid request data type"),
        ([{"data": {"ndarray": [[1], [1, 2]]}}], r"seldonMessages\[0\]: data\.ndarray is ragged"),
        ([{"strData": 1}], r"\$\[0\]\.strData"),
    ],
)
def test_bad_lists_of_messages(message, names):
    """A list that is empty, or has a bad message, is a 400 that names the place."""
    with pytest.raises(BadRequest, match=names):
        decode(python_json.dumps(message), "aggregate")


@pytest.mark.parametrize("padding", ["", LONG])
@pytest.mark.parametrize("raw", [False, True])
def test_feedback(padding, raw):
    """A feedback's numbers are floats; its routing is the unit's own, or unit 0's."""
    payload = decode(python_json.dumps(FEEDBACK) + padding, "send_feedback", raw=raw)
    found = payload.value
    assert payload.kind is Kind.FEEDBACK
    assert (found.features.dtype, found.features.tolist(), found.names) == (np.float64, [[1.0]], ["a"])
    assert (found.truth.tolist(), found.reward, found.routing) == ([7.0], 1.0, 2)
    assert payload.meta == FEEDBACK["request"]["meta"]
    assert (payload.message == FEEDBACK) is raw
    assert decode(FEEDBACK, "send_feedback", unit_id="unit").value.routing == 3
    assert decode(FEEDBACK, "send_feedback", unit_id="other").value.routing is None


def test_empty_feedback():
    """Nothing is needed in a feedback; a request or a truth that is no data gives empty arrays."""
    for message in ({}, {"request": {"strData": "x"}, "truth": {"jsonData": [1]}, "reward": None, "response": None}):
        found = decode(message, "send_feedback").value
        assert (found.features.tolist(), found.truth.tolist(), found.names) == ([], [], [])
        assert (found.reward, found.routing) == (0.0, None)


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ({"foo": 1}, "foo"),
        ({"reward": "x"}, r"\$\.reward"),
        ({"request": {"data": {"tensor": {"shape": [1], "values": ["x"]}}}}, r"request\.data\.tensor\.values"),
        ({"truth": {"data": {"ndarray": [[1], 2]}}}, r"truth\.data\.ndarray is ragged"),
        ({"truth": {"meta": 1}}, r"truth\.meta"),
        ({"response": {"meta": {"routing": []}}}, r"response\.meta\.routing"),
        ({"response": {"meta": {"routing": {"0": "x"}}}}, r"response\.meta\.routing"),
        ({"response": {"meta": {"routing": {"0": True}}}}, r"response\.meta\.routing"),
        ([], "object"),
    ],
)
def test_bad_feedback(message, names):
    """An unknown field, texts for numbers and routing that is none are a 400 that names them."""
    with pytest.raises(BadRequest, match=names):
        decode(message, "send_feedback")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"data": {"ndarray": [[1]], "foo": 1}, "bar": [None]}, Kind.TENSOR),
        ({"strData": "x", "meta": {"a": 1}}, Kind.TEXT),
        ([1], Kind.RAW),
        ("x", Kind.RAW),
        (3, Kind.RAW),
        (None, Kind.RAW),
        ({"my": "own"}, Kind.RAW),
        ({"data": {"ndarray": [[1], 2]}}, Kind.RAW),
        ({"strData": "x", "meta": 1}, Kind.RAW),
    ],
)
def test_raw_messages_are_untouched(message, kind):
    """A hook that wants the message gets the parsed JSON as it was sent; what is no message of Seldon's is no error."""
    for padding in ("", LONG):
        payload = decode(python_json.dumps(message) + padding, raw=True)
        assert payload.kind is kind
        assert payload.message == message
        assert type(payload.message) is type(message)
    with pytest.raises(BadRequest):
        decode("{", raw=True)


@pytest.mark.parametrize("method", ["aggregate", "send_feedback"])
def test_raw_lists_and_feedbacks(method):
    """Messages of aggregate and send_feedback are untouched too."""
    message = [{"strData": "x"}] if method == "aggregate" else {"reward": 1}
    payload = decode(message, method, raw=True)
    assert payload.message == message
    assert payload.kind is (Kind.MANY if method == "aggregate" else Kind.FEEDBACK)
    assert decode({"a": 1}, method, raw=True).kind is Kind.RAW


FIELDS = [
    "data",
    "ndarray",
    "tensor",
    "shape",
    "values",
    "names",
    "meta",
    "tags",
    "strData",
    "binData",
    "jsonData",
    "request",
    "response",
    "truth",
    "reward",
    "routing",
    "seldonMessages",
    "0",
]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(
    message=junk,
    method=st.sampled_from(["predict", "aggregate", "send_feedback"]),
    raw=st.booleans(),
    long=st.booleans(),
)
def test_any_json_is_a_payload_or_a_400(message, method, raw, long):
    """Whatever JSON is sent, the answer is a payload or a 400, the same for a short body and a long one."""
    body = python_json.dumps(message)
    try:
        payload = decode(body + LONG * long, method, raw=raw)
    except BadRequest:
        with pytest.raises(BadRequest):
            decode(body + LONG * (not long), method, raw=raw)
    else:
        other = decode(body + LONG * (not long), method, raw=raw)
        assert payload.kind is other.kind
        if payload.kind is Kind.TENSOR:
            assert payload.value.dtype == other.value.dtype
            assert payload.value.shape == other.value.shape

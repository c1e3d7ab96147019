"""The meta object of Seldon's answers."""

from __future__ import annotations

import pytest

from prefork.protocols import seldon
from seldon_messages import (
    HERE,
    NDARRAY,
    TENSOR,
    TEXT,
    answer_of,
    answered,
    decode,
)

META = {
    "puid": "p",
    "tags": {"a": 1, "b": 1},
    "metrics": [{"key": "k"}],
    "requestPath": {"up": "image"},
    "routing": {"r": 1},
    "headers": {"x": "y"},
}


HIDDEN = seldon.Context(unit_id="me", unit_image="mine:1", include_metrics=False)


@pytest.mark.parametrize(
    ("method", "context", "meta"),
    [
        (
            "predict",
            HERE,
            {
                "puid": "p",
                "tags": {"a": 1, "b": 2, "c": 3},
                "metrics": [{"key": "k"}, {"key": "own"}],
                "requestPath": {"up": "image"},
            },
        ),
        (
            "transform_output",
            HIDDEN,
            {
                "puid": "p",
                "tags": {"a": 1, "b": 2, "c": 3},
                "metrics": [{"key": "k"}],
                "requestPath": {"up": "image", "me": "mine:1"},
            },
        ),
        ("route", HERE, {"puid": "p", "tags": {"b": 2, "c": 3}, "metrics": [{"key": "own"}]}),
        ("route", HIDDEN, {"puid": "p", "tags": {"b": 2, "c": 3}, "requestPath": {"me": "mine:1"}}),
        ("predict", seldon.Context(unit_id="me"), None),
    ],
)
def test_meta(method, context, meta):
    """Tags merge, metrics are put together, the puid is echoed, routing is not; a router keeps the puid alone."""
    answer = answer_of([[1]], method, tags={"b": 2, "c": 3}, metrics=[{"key": "own"}])
    found = answered(answer, {**NDARRAY, "meta": META}, method, context)["meta"]
    if meta is None:
        assert found["requestPath"] == {"me": "NOT_IMPLEMENTED:NOT_IMPLEMENTED", "up": "image"}
    else:
        assert found == meta


def test_encoding_leaves_the_request_alone():
    """The request's meta and the model's tags are not written into."""
    request = decode({**TEXT, "meta": META})
    tags, metrics = {"b": 2}, [{"key": "own"}]
    for _ in range(2):
        seldon.encode(answer_of("x", tags=tags, metrics=metrics), request, HIDDEN)
    assert (request.meta, tags, metrics) == (META, {"b": 2}, [{"key": "own"}])


def test_meta_of_many():
    """Meta of many messages merge from left to right; the puid and the encoding are the first one's."""
    messages = [
        {**TENSOR, "meta": {"puid": "1", "tags": {"a": 1, "b": 1}, "metrics": [{"key": "x"}]}},
        {**NDARRAY, "meta": {"puid": "2", "tags": {"b": 2}, "metrics": [{"key": "y"}], "requestPath": {"u": "i"}}},
        TEXT,
    ]
    found = answered(answer_of([[1]], "aggregate", tags={"c": 3}), messages, "aggregate")
    assert found["data"]["tensor"] == {"shape": [1, 1], "values": [1]}
    assert found["meta"] == {
        "puid": "1",
        "tags": {"a": 1, "b": 2, "c": 3},
        "metrics": [{"key": "x"}, {"key": "y"}],
        "requestPath": {"u": "i"},
    }
    assert answered(answer_of("x", "aggregate"), [TEXT, messages[0]], "aggregate")["meta"].get("puid") is None

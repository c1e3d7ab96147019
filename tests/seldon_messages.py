"""Seldon's requests and answers, made and read without a server."""

from __future__ import annotations

import json as python_json
from typing import Any

import numpy as np

from prefork.http import Request, Response
from prefork.payload import Kind, Payload
from prefork.protocols import seldon

LONG = " " * 3000


HERE = seldon.Context()


JSON = "application/json"


def request_of(
    body: str | bytes = b"", content_type: str = JSON, query: str = "", http_method: str = "POST"
) -> Request:
    headers = {b"content-type": content_type.encode()} if content_type else {}
    raw = body.encode() if isinstance(body, str) else body
    return Request(http_method, "/predict", query.encode(), headers, [raw] if raw else [])


def decode(message: Any, method: str = "predict", **options: Any) -> Payload:
    body = message if isinstance(message, (str, bytes)) else python_json.dumps(message)
    return seldon.decode(request_of(body), method, **options)


def body_of(response: Response) -> Any:
    text = b"".join(response.body)
    assert response.content_type == JSON
    assert text.endswith(b"\n")
    return python_json.loads(text)


def answered(answer: Payload, message: Any, method: str = "predict", context: seldon.Context = HERE) -> Any:
    return body_of(seldon.encode(answer, decode(message, method), context))


def answer_of(result: Any, method: str = "predict", **fields: Any) -> Payload:
    """What a model's result is: the simplest of the rules that models follow."""
    kinds = {str: Kind.TEXT, bytes: Kind.BYTES, bytearray: Kind.BYTES, dict: Kind.JSON}
    if type(result) in kinds:
        return Payload(kinds[type(result)], result, method, **fields)
    return Payload(Kind.TENSOR, np.array([] if result is None else result), method, **fields)


FEEDBACK = {
    "request": {"data": {"names": ["a"], "ndarray": [[1]]}, "meta": {"puid": "p", "tags": {"t": 1}}},
    "response": {"meta": {"routing": {"0": 2, "unit": 3}}},
    "reward": 1,
    "truth": {"data": {"tensor": {"shape": [1], "values": [7]}}},
}


TENSOR = {"data": {"tensor": {"shape": [1], "values": [1]}}}


NDARRAY = {"data": {"ndarray": [1]}}


TEXT = {"strData": "x"}

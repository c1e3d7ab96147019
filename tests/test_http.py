"""What both fronts promise, whatever the protocol."""

from __future__ import annotations

import gzip
import json
import sys
import zlib

import numpy as np
import pytest

from prefork.testing import Client

BODY = {"data": {"ndarray": [[1, 2]]}}


class Echo:
    def predict(self, X, names):
        return X


class Fails:
    def predict(self, X, names):
        raise ValueError("the third column is missing")


def test_error_shape_follows_the_path(front: str):
    """An unknown path answers in the shape that the clients of its neighbours read."""
    with Client(Echo, front=front) as client:
        assert client.get("/nope").json()["status"]["reason"] == "NOT_FOUND"
        assert client.get("/v2/nope").json()["error"].startswith("Not Found")
        assert client.get("/v1/nope").json()["error"].startswith("Not Found")
        for path in ("/nope", "/v2/nope", "/v1/nope", "/predict/"):
            assert client.get(path).status_code == 404


def test_wrong_method_is_405_with_allow(front: str):
    """A wrong method is a 405 that lists the right ones."""
    with Client(Echo, front=front) as client:
        response = client.delete("/predict")
        assert response.status_code == 405
        assert response.headers["allow"] == "GET, HEAD, POST"


def test_model_error_is_500_with_message_and_traceback_in_the_log(front: str, caplog: pytest.LogCaptureFixture):
    """What the user's code raises is a 500 with its message; its traceback, with the line, is in the log."""
    with Client(Fails, front=front) as client:
        response = client.post("/predict", json=BODY)
        assert response.status_code == 500
        assert response.json()["status"]["info"] == "the third column is missing"
        v2 = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [1.0]}]}
        assert "the third column is missing" in client.post("/v2/models/Fails/infer", json=v2).json()["error"]
    assert 'raise ValueError("the third column is missing")' in caplog.text


class Unencodable:
    def predict(self, X, names):
        return [[object()]]


def test_answer_without_a_form_is_logged(front: str, caplog: pytest.LogCaptureFixture):
    """An answer that cannot be encoded is a 500 that names its type, and a line in the log."""
    with Client(Unencodable, front=front) as client:
        response = client.post("/predict", json=BODY)
        assert response.status_code == 500
        assert "object" in response.json()["status"]["info"]
    assert "/predict" in caplog.text


class Leaves:
    def predict(self, X, names):
        sys.exit(4)


class LeavesLater:
    async def predict(self, X, names):
        sys.exit(4)


@pytest.mark.parametrize("model", [Leaves, LeavesLater])
def test_sys_exit_in_the_model_ends_the_request_only(front: str, model: type):
    """A model that calls sys.exit() gets its request a 500; the server answers the next one."""
    with Client(model, front=front) as client:
        for _ in range(3):
            response = client.post("/predict", json=BODY)
            assert response.status_code == 500
            assert "sys.exit(4)" in response.json()["status"]["info"]
        assert client.get("/live").status_code == 200


class Panic(BaseException):
    pass


class Panics:
    def predict(self, X, names):
        raise Panic("index out of bounds")


class PanicsLater:
    async def predict(self, X, names):
        raise Panic("index out of bounds")


@pytest.mark.parametrize("model", [Panics, PanicsLater])
def test_what_is_no_exception_ends_the_request_only(front: str, model: type):
    """What Rust's extensions raise is no Exception: a 500 all the same, as often as it is asked for."""
    with Client(model, front=front) as client:
        for _ in range(3):
            response = client.post("/predict", json=BODY)
            assert response.status_code == 500
            assert response.json()["status"]["info"] == "index out of bounds"


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_body_is_read(front: str, coding: str, pack):
    """gzip and deflate bodies are read on every protocol."""
    with Client(Echo, front=front) as client:
        headers = {"content-encoding": coding, "content-type": "application/json"}
        response = client.post("/predict", content=pack(json.dumps(BODY).encode()), headers=headers)
        assert response.json()["data"]["ndarray"] == [[1, 2]]


def test_broken_compression_is_400(front: str):
    """A body that is not the gzip it claims to be is a 400, never an empty body."""
    with Client(Echo, front=front) as client:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        assert client.post("/predict", content=b"{}", headers=headers).status_code == 400


def test_answer_is_compressed_when_asked_for(front: str):
    """Accept-Encoding is honoured for answers of some size, and the JSON inside is the same."""
    rows = [[float(i), 0.5] for i in range(400)]
    with Client(Echo, front=front) as client:
        for coding in ("gzip", "deflate"):
            response = client.post("/predict", json={"data": {"ndarray": rows}}, headers={"accept-encoding": coding})
            assert response.headers["content-encoding"] == coding
            assert response.json()["data"]["ndarray"] == rows


def test_body_limit_is_exact(front: str):
    """A body of exactly `max_body_size` bytes is taken, one byte more is a 413 in JSON."""
    body = json.dumps({"strData": "x" * 100}).encode()
    headers = {"content-type": "application/json"}
    with Client(Echo, front=front, max_body_size=len(body)) as client:
        assert client.post("/predict", content=body, headers=headers).status_code == 200
        response = client.post("/predict", content=body + b" ", headers=headers)
        assert response.status_code == 413
        assert response.headers["access-control-allow-origin"] == "*"
        assert "max_body_size" in response.json()["status"]["info"]


def test_body_limit_holds_for_what_is_decompressed(front: str):
    """A small compressed body that grows beyond the limit is a 413."""
    with Client(Echo, front=front, max_body_size=1000) as client:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        assert client.post("/predict", content=gzip.compress(b" " * 1001), headers=headers).status_code == 413


def test_cors_on_every_answer(front: str):
    """Every answer, errors too, may be read by a page from elsewhere."""
    with Client(Echo, front=front) as client:
        assert client.post("/predict", json=BODY).headers["access-control-allow-origin"] == "*"
        assert client.get("/nope").headers["access-control-allow-origin"] == "*"
        response = client.get("/health/ping", headers={"origin": "http://a.example"})
        assert response.headers["access-control-allow-origin"] == "http://a.example"
        assert "Origin" in response.headers["vary"]


def test_preflight(front: str):
    """OPTIONS answers 200 and allows the methods and headers that a browser asks about."""
    with Client(Echo, front=front) as client:
        response = client.options("/predict", headers={"origin": "http://a.example"})
        assert response.status_code == 200
        assert "POST" in response.headers["access-control-allow-methods"]
        assert response.headers["allow"] == "GET, HEAD, POST"


def test_head_has_length_and_no_body(front: str):
    """HEAD answers what GET would, without the body."""
    with Client(Echo, front=front) as client:
        response = client.head("/health/ping")
        assert response.status_code == 200
        assert response.content == b""
        assert response.headers["content-length"] == "4"


def test_health(front: str):
    """Live, ready and ping answer, on each protocol's path."""
    with Client(Echo, front=front) as client:
        assert client.get("/health/ping").text == "pong"
        for path in ("/live", "/ready", "/v2/health/live", "/v2/health/ready", "/v2/models/Echo/ready", "/ping"):
            assert client.get(path).status_code == 200, path


def test_unknown_model_is_404(front: str):
    """Another model's name, or another version, is a 404 on V2 and V1."""
    with Client(Echo, front=front) as client:
        assert client.post("/v2/models/nope/infer", json={}).status_code == 404
        assert client.post("/v2/models/Echo/versions/7/infer", json={}).status_code == 404
        assert client.post("/v1/models/nope:predict", json={}).status_code == 404


def test_deep_nesting_is_400(front: str):
    """JSON nested beyond the limit is a 400, whatever the path."""
    deep = '{"jsonData":' + "[" * 2000 + "]" * 2000 + "}"
    with Client(Echo, front=front) as client:
        headers = {"content-type": "application/json"}
        assert client.post("/predict", content=deep, headers=headers).status_code == 400
        assert client.post("/v2/models/Echo/infer", content=deep).status_code == 400
        assert client.post("/v1/models/Echo:predict", content=deep).status_code == 400
        fine = '{"jsonData":{"a":' + "[" * 50 + "]" * 50 + "}}"
        assert client.post("/predict", content=fine, headers=headers).status_code == 200


def test_nan_is_null_unless_literal(front: str):
    """NaN in an answer is null, which is JSON; `nan: literal` writes it as Python's and Triton's clients do."""
    body = '{"data":{"ndarray":[[NaN,Infinity,1.5]]}}'
    headers = {"content-type": "application/json"}
    with Client(Echo, front=front) as client:
        assert client.post("/predict", content=body, headers=headers).json()["data"]["ndarray"] == [[None, None, 1.5]]
    with Client(Echo, front=front, nan="literal") as client:
        text = client.post("/predict", content=body, headers=headers).text
        assert "NaN" in text
        assert "Infinity" in text


class Half:
    def predict(self, X, names):
        return X.astype(np.float32) / np.float32(3)


def test_float32_prints_its_shortest_text(front: str):
    """float32 goes out as the shortest digits that read back to it on Seldon and V1, as its double on V2."""
    with Client(Half, front=front) as client:
        assert "0.33333334" in client.post("/predict", json=BODY).text
        assert "0.33333334" in client.post("/v1/models/Half:predict", json={"instances": [[1, 2]]}).text
        v2 = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "INT64", "data": [1]}]}
        assert "0.3333333432674408" in client.post("/v2/models/Half/infer", json=v2).text


class Headers:
    def predict(self, X, names, meta=None):
        return {"user": (meta or {}).get("headers", {}).get("x-user", "nobody")}


def test_headers_reach_the_model_when_asked_for(front: str):
    """`forward_headers` puts the request's headers into meta; without it they stay out."""
    with Client(Headers, front=front, forward_headers=True) as client:
        response = client.post("/predict", json=BODY, headers={"X-User": "ada"})
        assert response.json()["jsonData"] == {"user": "ada"}
    with Client(Headers, front=front) as client:
        assert client.post("/predict", json=BODY, headers={"X-User": "ada"}).json()["jsonData"] == {"user": "nobody"}


def test_documents(front: str):
    """The OpenAPI documents and the docs page are served, and the page needs nothing from elsewhere."""
    with Client(Echo, front=front) as client:
        assert client.get("/openapi.json").json()["openapi"].startswith("3.")
        assert "/predict" in client.get("/seldon.json").json()["paths"]
        page = client.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "Echo" in page.text


def test_every_documented_path_is_served(front: str):
    """No path in the OpenAPI document answers 404 or 405 for its own method."""
    with Client(Echo, front=front) as client:
        document = client.get("/openapi.json").json()
        for path, operations in document["paths"].items():
            url = path.replace("{model}", "Echo").replace("{version}", "1")
            for method in operations:
                if method in ("get", "post"):
                    assert client.request(method, url).status_code not in (404, 405), (method, url)

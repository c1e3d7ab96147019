"""Asynchronous and streaming models, user's blueprints, typed classes: over both fronts, as a client sees them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import flask
import numpy as np
import pytest

from prefork.protocols import sse
from prefork.testing import Client

BODY = {"data": {"ndarray": [[1, 2]]}}
V2 = {"inputs": [{"name": "X", "shape": [1, 2], "datatype": "INT64", "data": [1, 2]}]}


class Later:
    async def predict(self, X, names):
        await asyncio.sleep(0)
        return X * 2


def test_async_predict_answers_on_every_protocol(front: str):
    """An `async def predict` answers as a plain one does."""
    with Client(Later, front=front) as client:
        assert client.post("/predict", json=BODY).json()["data"]["ndarray"] == [[2, 4]]
        assert client.post("/v2/models/Later/infer", json=V2).json()["outputs"][0]["data"] == [2, 4]
        assert client.post("/v1/models/Later:predict", json={"instances": [[1, 2]]}).json() == {"predictions": [[2, 4]]}
        assert client.post("/invocations", json={"inputs": [[1, 2]]}).json() == {"predictions": [[2, 4]]}


class LaterFails:
    async def predict(self, X, names):
        raise KeyError("no such feature")


def test_async_error_is_500_with_its_message(front: str):
    """What an `async def predict` raises is a 500 with its message."""
    with Client(LaterFails, front=front) as client:
        response = client.post("/predict", json=BODY)
        assert response.status_code == 500
        assert response.json()["status"]["info"] == "'no such feature'"


class Words:
    def predict(self, text: str) -> Iterator[dict[str, str]]:
        for word in text.split():
            if word == "fail":
                raise RuntimeError("cannot say that")
            yield {"word": word}


class WordsLater:
    async def predict(self, text: str) -> AsyncIterator[dict[str, str]]:
        for word in text.split():
            await asyncio.sleep(0)
            if word == "fail":
                raise RuntimeError("cannot say that")
            yield {"word": word}


@pytest.fixture(params=[Words, WordsLater])
def words(request: pytest.FixtureRequest) -> type:
    return request.param


def events(response) -> list[bytes]:
    return list(sse.events([response.content]))


def test_generator_streams_events(front: str, words: type):
    """Each part that a generator yields, sync or async, is one server-sent event."""
    with Client(words, front=front, name="words") as client:
        response = client.post("/v2/models/words/generate_stream", json={"text": "a b c"})
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert [
            b'"word":"%s"' % word in event for word, event in zip((b"a", b"b", b"c"), events(response), strict=True)
        ]
        assert len(events(response)) == 3


def test_error_before_the_first_part_has_a_status(front: str, words: type):
    """A stream that fails before its first part is an ordinary error answer."""
    with Client(words, front=front, name="words") as client:
        response = client.post("/v2/models/words/generate_stream", json={"text": "fail"})
        assert response.status_code == 500
        assert response.json() == {"error": "cannot say that"}
        assert client.post("/v2/models/words/generate_stream", json={}).status_code == 400


def test_error_in_mid_stream_is_the_last_event(front: str, words: type):
    """A stream that fails later ends with an event that carries the error."""
    with Client(words, front=front, name="words") as client:
        response = client.post("/v2/models/words/generate_stream", json={"text": "a fail b"})
        assert response.status_code == 200
        assert len(events(response)) == 2
        assert b"cannot say that" in events(response)[-1]


def test_generate_wants_exactly_one_part(front: str, words: type):
    """`generate` answers the one part that there is; none or several are an error that names generate_stream."""
    with Client(words, front=front, name="words") as client:
        assert client.post("/v2/models/words/generate", json={"text": "a"}).json()["word"] == "a"
        for text in ("", "a b"):
            response = client.post("/v2/models/words/generate", json={"text": text})
            assert response.status_code == 500
            assert "generate_stream" in response.json()["error"]


def test_stream_on_plain_endpoints_is_refused(front: str, words: type):
    """A generator behind an endpoint that can carry one answer only is a 501 that names the streaming one."""
    with Client(words, front=front, name="words") as client:
        asked = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a b"]}]}
        assert client.post("/v2/models/words/infer", json=asked).status_code == 501
        assert client.post("/predict", json={"strData": "a b"}).status_code == 501


def test_streaming_model_has_its_other_endpoints(front: str, words: type):
    """A model whose predict streams answers health and the transforms as any other."""
    with Client(words, front=front, name="words") as client:
        assert client.get("/health/status").json()["strData"] == "healthy"
        assert client.post("/transform-input", json=BODY).json()["data"]["ndarray"] == [[1, 2]]


def test_plain_model_streams_its_one_answer(front: str):
    """generate_stream works for a model that answers once: one event."""
    with Client(Later, front=front) as client:
        response = client.post("/v2/models/Later/generate_stream", json={"X": 21})
        assert len(events(response)) == 1


class Iris:
    def predict(self, sepal: np.ndarray, threshold: float = 0.5) -> dict[str, np.ndarray]:
        return {"big": sepal > threshold}


def test_typed_class_takes_inputs_by_name(front: str):
    """A typed signature gets V2's inputs by their names, its defaults where one is absent."""
    body = {"inputs": [{"name": "sepal", "shape": [2], "datatype": "FP64", "data": [0.1, 0.9]}]}
    with Client(Iris, front=front) as client:
        answer = client.post("/v2/models/Iris/infer", json=body).json()
        assert answer["outputs"] == [{"name": "big", "datatype": "BOOL", "shape": [2], "data": [False, True]}]
        body["inputs"].append({"name": "threshold", "shape": [1], "datatype": "FP64", "data": [0.95]})
        answer = client.post("/v2/models/Iris/infer", json=body).json()
        assert answer["outputs"][0]["data"] == [False, False]


def test_typed_class_has_metadata(front: str):
    """The signature is the metadata: names, datatypes, shapes."""
    with Client(Iris, front=front) as client:
        inputs = client.get("/v2/models/Iris").json()["inputs"]
        assert [entry["name"] for entry in inputs] == ["sepal", "threshold"]
        assert inputs[1] == {"name": "threshold", "datatype": "FP64", "shape": [1]}


def test_typed_class_answers_seldon_and_v1(front: str):
    """The same typed class answers the other protocols: an array is its array input, an object its names."""
    with Client(Iris, front=front) as client:
        assert client.post("/predict", json={"data": {"ndarray": [0.1, 0.9]}}).status_code == 200
        v1 = client.post("/v1/models/Iris:predict", json={"inputs": {"sepal": [0.1, 0.9]}})
        assert v1.json() == {"outputs": [False, True]}


class Columns:
    def predict(self, X, names):
        return {"names": list(names), "shape": list(X.shape)}


def test_columns_become_x(front: str):
    """For a class with `X, names` several column tensors become X's columns with their names."""
    body = {
        "inputs": [
            {"name": name, "shape": [2], "datatype": "FP64", "data": [1.0, 2.0]} for name in ("age", "height", "weight")
        ]
    }
    with Client(Columns, front=front) as client:
        outputs = {o["name"]: o["data"] for o in client.post("/v2/models/Columns/infer", json=body).json()["outputs"]}
        assert outputs == {"names": ["age", "height", "weight"], "shape": [2, 3]}


class TeapotError(Exception):
    pass


class WithBlueprints:
    model_error_handler = flask.Blueprint("errors", __name__)
    blueprint = flask.Blueprint("own", __name__)

    def predict(self, X, names):
        raise TeapotError("short and stout")


@WithBlueprints.model_error_handler.app_errorhandler(TeapotError)
def handle_teapot(error):
    return flask.jsonify({"teapot": str(error)}), 418


@WithBlueprints.blueprint.route("/own/<int:number>", methods=["GET", "POST"])
def own_page(number):
    return flask.jsonify(
        {"number": number, "asked": flask.request.args.get("q"), "body": flask.request.get_data(as_text=True)}
    )


def test_own_error_handler_answers(front: str):
    """A handler in the user's `model_error_handler` blueprint answers for the exception it was made for."""
    with Client(WithBlueprints, front=front) as client:
        response = client.post("/predict", json=BODY)
        assert response.status_code == 418
        assert response.json() == {"teapot": "short and stout"}


def test_own_routes_are_mounted(front: str):
    """The user's `blueprint` adds routes of its own beside ours."""
    with Client(WithBlueprints, front=front) as client:
        response = client.post("/own/7?q=x", content="hello")
        assert response.json() == {"number": 7, "asked": "x", "body": "hello"}
        assert client.delete("/own/7").status_code in (404, 405)
        assert client.get("/own/x").status_code == 404
        assert client.get("/health/ping").text == "pong"


class Overrides:
    blueprint = flask.Blueprint("overrides", __name__)

    def predict(self, X, names):
        return X


@Overrides.blueprint.route("/live", methods=["GET", "POST"])
def own_live():
    return {"size": len(flask.request.get_data()), "own": True}


@Overrides.blueprint.route("/broken")
def own_broken():
    raise ValueError("broken view")


def test_own_route_wins_over_ours(front: str):
    """A path of the user's blueprint is the user's, also where there is one of ours."""
    with Client(Overrides, front=front) as client:
        response = client.get("/live")
        assert response.json() == {"size": 0, "own": True}
        assert response.headers["access-control-allow-origin"] == "*"


def test_own_routes_are_bounded_too(front: str):
    """`max_body_size` holds for the user's own routes."""
    with Client(Overrides, front=front, max_body_size=100) as client:
        assert client.post("/live", content=b"x" * 100).json()["size"] == 100
        assert client.post("/live", content=b"x" * 101).status_code == 413


def test_failing_view_is_500_in_json(front: str):
    """A user's view that raises is a 500 in JSON, and its traceback is in the log."""
    with Client(Overrides, front=front) as client:
        response = client.get("/broken")
        assert response.status_code == 500
        assert response.json()["status"]["reason"] == "INTERNAL_SERVER_ERROR"


class Parameters:
    def predict(self, X, names, meta=None):
        return {"given": (meta or {}).get("parameters", {}).get("temperature")}


def test_parameters_reach_the_model_as_meta(front: str):
    """V2's and MLflow's parameters reach a class with `X, names` in `meta["parameters"]`."""
    with Client(Parameters, front=front) as client:
        body = {**V2, "parameters": {"temperature": 0.5}}
        answer = client.post("/v2/models/Parameters/infer", json=body).json()
        assert answer["outputs"][0] == {"name": "given", "datatype": "FP64", "shape": [1], "data": [0.5]}
        answer = client.post("/invocations", json={"inputs": [[1]], "params": {"temperature": 2}}).json()
        assert answer["predictions"] == {"given": 2}


class Turns:
    def __init__(self):
        self.inside = 0

    def predict(self, X, names):
        self.inside += 1
        together = self.inside
        threading.Event().wait(0.002)
        self.inside -= 1
        return [[together]]


def test_one_model_thread_calls_one_at_a_time():
    """With the default of one model thread `predict` is never called twice at once in a worker."""
    seen: list[int] = []
    with Client(Turns) as client:

        def ask() -> None:
            seen.append(client.post("/predict", json=BODY).json()["data"]["ndarray"][0][0])

        callers = [threading.Thread(target=ask) for _ in range(20)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert seen == [1] * 20

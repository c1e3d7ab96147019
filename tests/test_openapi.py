"""The OpenAPI document, and the sample requests in it."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from jsonschema import Draft202012Validator

from prefork import openapi
from prefork.http import Request
from prefork.openapi import RouteDoc
from prefork.payload import ModelSpec, Sample, TensorSpec
from prefork.protocols import examples, mlflow, seldon_types, v1, v2, v2_types

BOTH, GET, POST = ("GET", "POST"), ("GET",), ("POST",)

ROUTES = [
    RouteDoc("/predict", BOTH, "seldon", "Predict.", seldon_types.SeldonMessage, seldon_types.SeldonMessage),
    RouteDoc("/aggregate", BOTH, "seldon", "Merge.", seldon_types.SeldonMessageList, seldon_types.SeldonMessage),
    RouteDoc("/send-feedback", BOTH, "seldon", "Learn.", seldon_types.Feedback, seldon_types.SeldonMessage),
    RouteDoc("/v2", GET, "v2", "Server."),
    RouteDoc("/v2/models/{model}/infer", POST, "v2", "Infer.", v2_types.InferRequest, v2_types.InferResponse),
    RouteDoc("/v2/models/{model}/versions/{version}/infer", POST, "v2", "Infer.", v2_types.InferRequest),
    RouteDoc("/v2/models/{model}/generate_stream", POST, "v2", "Stream.", v2_types.GenerateRequest),
    RouteDoc("/v1/models/{model}", GET, "v1", "Status.", None, v1.ModelStatus),
    RouteDoc("/v1/models/{model}:predict", POST, "v1", "Predict.", v1.PredictRequest, v1.PredictResponse),
    RouteDoc("/invocations", POST, "mlflow", "Score.", mlflow.Invocation, mlflow.Predictions),
    RouteDoc("/docs", GET, "prefork", "Docs."),
]

FREE = ModelSpec("iris")
TYPED = ModelSpec(
    "Ï ris/<b>'\"",
    version="7",
    inputs=(
        TensorSpec("FP32", (-1, 4), "flower's"),
        TensorSpec("BYTES", (-1,), "colour"),
        TensorSpec("FP64", (1,), "threshold", optional=True),
    ),
)
SCALARS = ModelSpec("s", inputs=(TensorSpec("INT8", (1,), "a"), TensorSpec("BOOL", (-1,), "b")))
NUMBERS = ModelSpec("n", inputs=(TensorSpec("INT8", (1,), "a"), TensorSpec("FP32", (-1, 1), "b")))
ANYTHING = ModelSpec("a", inputs=(TensorSpec(name="x"),))
OPTIONAL = ModelSpec("o", inputs=(TensorSpec("UINT16", (), "x", optional=True),))
HALF = ModelSpec("h", inputs=(TensorSpec("FP16", (-1, -1), "x"), TensorSpec("BF16", (2,), "y")))
LARGE = ModelSpec("l", inputs=(TensorSpec("FP32", (-1, 3, 64, 64), "x"), TensorSpec("BOOL", (1,), "b")))
STREAMS = ModelSpec("c", inputs=(TensorSpec("INT32", (1,), "N"),), streams=True)
SPECS = [FREE, TYPED, SCALARS, ANYTHING, OPTIONAL, HALF, LARGE, STREAMS]

every_spec = pytest.mark.parametrize("spec", SPECS, ids=[spec.name[0] for spec in SPECS])


def document(spec: ModelSpec = TYPED, routes: list[RouteDoc] = ROUTES) -> dict:
    found = openapi.document(spec, title=spec.name, server_version="1.2.3", routes=routes)
    return json.loads(json.dumps(found, allow_nan=False))


def body(path: str, spec: ModelSpec = TYPED) -> dict:
    return document(spec)["paths"][path]["post"]["requestBody"]["content"]


# --- the document


@every_spec
def test_it_is_openapi_3_1(spec):
    """The document is valid by the specification's own schema and rules, whatever the model's signature."""
    from openapi_spec_validator import OpenAPIV31SpecValidator

    assert list(OpenAPIV31SpecValidator(document(spec)).iter_errors()) == []


def test_its_schemas_are_json_schema():
    """Every component is a JSON Schema 2020-12 document, every reference in the document leads to one."""
    found = document()
    for schema in found["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    references = {text.split('"')[0] for text in json.dumps(found).split('"$ref": "')[1:]}
    assert references == {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}


def test_every_route_is_there():
    """Each path has its methods, summary and protocol, and no two operations one identifier."""
    paths = document()["paths"]
    listed = {(path, method.upper()) for path, item in paths.items() for method in item if method != "parameters"}
    assert listed == {(route.path, method) for route in ROUTES for method in route.methods}
    operations = [item[method.lower()] for path, item in paths.items() for p, method in listed if p == path]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert paths["/v2"]["get"]["summary"] == "Server."
    assert paths["/v2"]["get"]["tags"] == ["v2"]


def test_it_tells_the_model_and_the_server():
    """Title and version are the model's, the server's version stands beside them."""
    assert document()["info"] == {"title": TYPED.name, "version": "7", "x-prefork-version": "1.2.3"}


def test_path_variables_have_the_models_values():
    """`{model}` and `{version}` are parameters whose only values are the served ones."""
    found = document()["paths"]["/v2/models/{model}/versions/{version}/infer"]["parameters"]
    assert {(one["name"], one["in"], one["required"], *one["schema"]["enum"]) for one in found} == {
        ("model", "path", True, TYPED.name),
        ("version", "path", True, "7"),
    }


def test_other_path_variables_are_any_text():
    """A variable that is no model and no version is a string."""
    found = document(FREE, [RouteDoc("/things/{thing}", GET, "prefork", "Thing.")])
    (parameter,) = found["paths"]["/things/{thing}"]["parameters"]
    assert (parameter["name"], parameter["schema"]) == ("thing", {"type": "string"})


def test_bodies_by_protocol():
    """A body is JSON of the wire struct, and whatever else the protocol takes; Seldon's GET has it in the query."""
    assert body("/invocations").keys() == {"application/json", "text/csv"}
    assert body("/predict").keys() == {"application/json", "application/x-www-form-urlencoded"}
    assert body("/v2/models/{model}/infer").keys() == {"application/json", "application/octet-stream"}
    assert body("/v1/models/{model}:predict")["application/json"]["schema"] == {
        "$ref": "#/components/schemas/PredictRequest"
    }
    (parameter,) = document()["paths"]["/predict"]["get"]["parameters"]
    assert (parameter["name"], parameter["in"]) == ("json", "query")


def test_errors_have_the_protocols_shape():
    """Each operation tells the error body of its protocol."""
    paths = document()["paths"]
    found = {path: item.get("post", item.get("get"))["responses"].get("default") for path, item in paths.items()}
    names = {
        path: answer and answer["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
        for path, answer in found.items()
    }
    assert names["/v2"] == "ErrorBody"
    assert names["/v1/models/{model}"] == "PredictError"
    assert names["/invocations"] == "InvocationError"
    assert names["/predict"] == "SeldonMessage"
    assert names["/docs"] is None


def test_streams_are_event_streams():
    """generate_stream answers server-sent events."""
    answer = document()["paths"]["/v2/models/{model}/generate_stream"]["post"]["responses"]["200"]
    assert answer["content"].keys() == {"text/event-stream"}


@every_spec
def test_samples_fit_their_schemas(spec):
    """Every sample in the document is valid by the schema beside it."""
    found = document(spec)
    checked = 0
    for item in found["paths"].values():
        for media in item.get("post", {}).get("requestBody", {}).get("content", {}).values():
            if "example" in media:
                schema = {**media["schema"], "components": found["components"]}
                assert list(Draft202012Validator(schema).iter_errors(media["example"])) == []
                checked += 1
    assert checked or spec is LARGE


def test_large_samples_are_left_out():
    """A sample that would make the document long is not in it; nor is one that V2's JSON cannot carry."""
    assert "example" not in body("/v2/models/{model}/infer", LARGE)["application/json"]
    assert "example" not in body("/v2/models/{model}/infer", HALF)["application/json"]
    assert "example" in body("/v1/models/{model}:predict", HALF)["application/json"]


def test_seldon_has_a_document_of_its_own():
    """`/seldon.json` has Seldon's paths and schemas, and nothing else's."""
    found = openapi.seldon_document(ROUTES, server_version="1.2.3")
    assert found["openapi"].startswith("3.")
    assert found["paths"].keys() == {"/predict", "/aggregate", "/send-feedback"}
    assert [tag["name"] for tag in found["tags"]] == ["seldon"]
    assert "InferRequest" not in found["components"]["schemas"]


def test_arrays_have_a_schema():
    """A numpy array in a wire struct is a JSON array; any other unknown type is the programmer's error."""

    class WithArray(msgspec.Struct):
        data: np.ndarray

    class WithOther(msgspec.Struct):
        data: threading.Thread

    found = document(FREE, [RouteDoc("/x", POST, "prefork", "X.", WithArray)])
    assert found["components"]["schemas"]["WithArray"]["properties"]["data"]["type"] == "array"
    with pytest.raises((NotImplementedError, TypeError)):
        document(FREE, [RouteDoc("/x", POST, "prefork", "X.", WithOther)])


# --- the samples


def test_samples_of_a_signature():
    """Samples have the required inputs by name, one row of them, in their datatypes."""
    row = [5.1, 3.5, 1.4, 0.2]
    assert examples.v2_request(TYPED) == {
        "inputs": [
            {"name": "flower's", "shape": [1, 4], "datatype": "FP32", "data": row},
            {"name": "colour", "shape": [1], "datatype": "BYTES", "data": ["text"]},
        ]
    }
    assert examples.seldon_message(TYPED) == {"jsonData": {"flower's": [row], "colour": ["text"]}}
    assert examples.seldon_message(NUMBERS) == {"data": {"names": ["a", "b"], "ndarray": [[1, 5.1]]}}
    assert examples.seldon_message(SCALARS) == {"jsonData": {"a": [1], "b": [True]}}
    assert examples.generate_request(TYPED) == {"flower's": row, "colour": "text"}
    assert examples.v1_request(SCALARS) == {"instances": [{"a": 1, "b": True}]}
    assert examples.v1_request(OPTIONAL) == {"inputs": {"x": 1}}
    assert examples.mlflow_request(SCALARS) == {"inputs": {"a": [1], "b": [True]}}


def test_samples_without_a_signature():
    """A model that takes anything is shown one row of four numbers."""
    assert examples.seldon_message(FREE) == {"data": {"ndarray": [[5.1, 3.5, 1.4, 0.2]]}}
    assert examples.v1_request(FREE) == {"instances": [[5.1, 3.5, 1.4, 0.2]]}
    assert examples.mlflow_request(FREE) == {"inputs": [[5.1, 3.5, 1.4, 0.2]]}


def sent(sample: dict, content_type: bytes = b"application/json") -> Request:
    return Request("POST", "/", b"", {b"content-type": content_type}, [json.dumps(sample).encode()])


@every_spec
def test_samples_are_accepted(spec):
    """The decoders of V2, V1 and MLflow take the samples, giving the model what its signature says."""
    one_answer = msgspec.structs.replace(spec, streams=False)
    found = [
        v1.decode(sent(examples.v1_request(spec)), one_answer)[0],
        mlflow.decode(sent(examples.mlflow_request(spec)), one_answer)[0],
    ]
    if examples.has_json_form(spec):
        found.append(v2.decode(sent(examples.v2_request(spec)), one_answer)[0])
    if spec.inputs is not None:
        shapes = [{name: (array.shape, array.dtype) for name, array in payload.value.items()} for payload in found]
        assert all(one == shapes[0] for one in shapes)


# --- curl


@pytest.fixture
def asked() -> Iterator[tuple[str, list]]:
    """A server that keeps what it is asked: its URL, and the paths, types and bodies."""
    requests: list[tuple[str, str, dict]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            text = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append((self.path, self.headers["Content-Type"], json.loads(text)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (FREE, [("/v2/models/iris/infer", examples.v2_request(FREE)), ("/predict", examples.seldon_message(FREE))]),
        (
            TYPED,
            [
                ("/v2/models/%C3%8F%20ris%2F%3Cb%3E%27%22/infer", examples.v2_request(TYPED)),
                ("/predict", examples.seldon_message(TYPED)),
            ],
        ),
        (STREAMS, [("/v2/models/c/generate_stream", {"N": 1})]),
        (
            HALF,
            [
                ("/v1/models/h:predict", {"inputs": {"x": [[5.1, 3.5, 1.4, 0.2]], "y": [5.1, 3.5]}}),
                ("/predict", {"jsonData": {"x": [[5.1, 3.5, 1.4, 0.2]], "y": [5.1, 3.5]}}),
            ],
        ),
    ],
    ids=["free", "typed", "streams", "half"],
)
def test_the_curl_lines_run(asked, spec, expected):
    """A shell that is given the lines sends the samples to the model's paths, quotes in names and all."""
    url, requests = asked
    for line in examples.lines(spec, url).splitlines():
        subprocess.run(["sh", "-c", line], check=True, timeout=30)
    assert [(found, content) for found, _, content in requests] == expected
    assert all(kind == "application/json" for path, kind, _ in requests if path == "/predict")


def test_the_curl_lines_of_a_large_input_stay_short(asked):
    """Too many numbers for a shell line are made by a line of Python in front of curl."""
    url, requests = asked
    for line in examples.lines(LARGE, url + "/").splitlines():
        assert len(line) < 500
        subprocess.run(["sh", "-c", line], check=True, timeout=30)
    (path, _, content), (_, _, message) = requests
    assert path == "/v2/models/l/infer"
    payload, _ = v2.decode(sent(content), LARGE)
    assert payload.value["x"].shape == (1, 3, 64, 64)
    assert np.shape(message["jsonData"]["x"]) == (1, 3, 64, 64)


def test_lines_for_several_models_have_no_seldon():
    """Seldon's path names no model: where it does not mean this one there is only V2's line."""
    (line,) = examples.lines(TYPED, "http://h", seldon=False).splitlines()
    assert "/infer" in line
    assert examples.example(TYPED, "http://h", seldon=False)["seldon"] is None


def test_a_server_at_a_socket_is_asked_there():
    """A server that listens on a path is asked there."""
    for line in examples.lines(FREE, "unix:/run/my server.sock").splitlines():
        assert line.startswith("curl -s --unix-socket '/run/my server.sock' http://localhost/")


def test_what_takes_too_much_has_no_sample():
    """For a tensor of billions nothing is made up: the line shows what the model takes, and the bodies are null."""
    spec = ModelSpec("big", inputs=(TensorSpec("FP32", (1 << 20, 1 << 12), "x"),))
    assert examples.lines(spec, "http://h") == "curl -s http://h/v2/models/big"
    assert examples.example(spec, "http://h") == {"v2": None, "seldon": None, "v1": None, "curl": {}}


def test_a_long_body_is_told_by_its_line_alone():
    """Above a few hundred thousand elements the body is null, and the line makes it."""
    told = examples.example(ModelSpec("m", inputs=(TensorSpec("FP32", (-1, 1 << 19), "x"),)), "http://h")
    assert told["v2"] == {"path": "/v2/models/m/infer", "body": None}
    assert len(told["curl"]["v2"]) < 300


def test_a_version_is_asked_by_its_paths():
    """The example of a version goes to that version."""
    told = examples.example(FREE, "http://h", "3")
    assert told["v2"]["path"] == "/v2/models/iris/versions/3/infer"
    assert told["v1"]["path"] == "/v1/models/iris/versions/3:predict"
    assert told["curl"]["v2"].startswith("curl -s http://h/v2/models/iris/versions/3/infer ")


# --- the model's own example

OWN = Sample(({"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2]},))


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (ModelSpec("m"), True),
        (ModelSpec("m", inputs=(TensorSpec("INT64", (-1,), "x"),)), True),
        (ModelSpec("m", inputs=(TensorSpec("INT64", (-1,), "other"),)), False),
        (ModelSpec("m", inputs=(TensorSpec("FP32", (-1,), "x"),)), False),
        (ModelSpec("m", inputs=(TensorSpec("INT64", (1,), "x"),)), False),
        (ModelSpec("m", inputs=(TensorSpec("INT64", (-1,), "x"), TensorSpec("INT64", (-1,), "y"))), False),
        (ModelSpec("m", max_rows=1), False),
    ],
)
def test_an_own_example_is_shown_where_it_fits(spec, fits):
    """The model's own example is the sample, unless what its file declares is something else."""
    found = examples.v2_request(msgspec.structs.replace(spec, example=OWN))
    assert (found == {"inputs": list(OWN.inputs)}) is fits
    assert fits or found == examples.v2_request(spec)


def test_an_example_that_is_no_tensor_is_seldons_alone():
    """Text or JSON goes by Seldon as it is; V2 and V1 cannot carry it."""
    spec = ModelSpec("m", example=Sample(message={"strData": "it's"}))
    told = examples.example(spec, "http://h")
    assert told["seldon"]["body"] == {"strData": "it's"}
    assert (told["v2"], told["v1"], list(told["curl"])) == (None, None, ["seldon"])
    assert "example" not in body("/v2/models/{model}/infer", spec)["application/json"]

"""The OpenAPI 3.1 document of what is served, from the route table, the wire structs and the model's signature.

Schemas are msgspec's, so that they cannot differ from what the decoders take. Samples are of the model's own inputs.
Format: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np

from prefork.payload import ModelSpec
from prefork.protocols import examples, mlflow, seldon_types, v1, v2_types

__all__ = ["RouteDoc", "document", "seldon_document"]

_REF = "#/components/schemas/{name}"
_VARIABLE = re.compile(r"\{(\w+)\}")
_SAMPLE_SIZE = 20_000
"""The longest sample, in characters, that the document carries."""

_ANY_MODEL = ModelSpec("model")

_PROTOCOLS = {
    "v2": "Open Inference Protocol V2, as KServe, Triton and MLServer speak it",
    "v1": "TF-Serving's REST API, KServe's V1",
    "mlflow": "MLflow's scoring server",
    "seldon": "Seldon Core v1",
    "prefork": "The server's own pages and probes",
}

_ERRORS: dict[str, type] = {
    "v2": v2_types.ErrorBody,
    "v1": v1.PredictError,
    "mlflow": mlflow.InvocationError,
    "seldon": seldon_types.SeldonMessage,
}

_SAMPLES: dict[type, Callable[[ModelSpec], Any]] = {
    v2_types.InferRequest: examples.v2_request,
    v2_types.GenerateRequest: examples.generate_request,
    v1.PredictRequest: examples.v1_request,
    mlflow.Invocation: examples.mlflow_request,
    seldon_types.SeldonMessage: examples.seldon_message,
    seldon_types.SeldonMessageList: examples.seldon_messages,
    seldon_types.Feedback: examples.seldon_feedback,
}

_OTHER_BODIES: dict[type, tuple[str, dict[str, Any]]] = {
    v2_types.InferRequest: (
        "application/octet-stream",
        {
            "schema": {
                "type": "string",
                "description": "The JSON, its length in Inference-Header-Content-Length, then tensors",
            }
        },
    ),
    mlflow.Invocation: ("text/csv", {"schema": {"type": "string", "description": "A row of column names, then rows"}}),
    seldon_types.SeldonMessage: (
        "application/x-www-form-urlencoded",
        {"schema": {"type": "object", "properties": {"json": {"type": "string"}}, "required": ["json"]}},
    ),
}


class RouteDoc(msgspec.Struct, frozen=True):
    """One row of the route table, as documents need it: `{variables}` in the path, wire structs or None for bodies."""

    path: str
    methods: tuple[str, ...]
    protocol: str
    summary: str
    request: type | None = None
    response: type | None = None


def document(spec: ModelSpec, *, title: str, server_version: str, routes: Iterable[RouteDoc]) -> dict[str, Any]:
    """The OpenAPI document of the routes, with samples of the model's own inputs.

    `info.version` is the model's; `x-prefork-version` the server's. JSON values only.
    """
    table = list(routes)
    schemas, components = _schemas(table)
    info = {"title": title, "version": spec.version, "x-prefork-version": server_version}
    used = {route.protocol for route in table}
    return {
        "openapi": "3.1.0",
        "info": info,
        "tags": [{"name": name, "description": text} for name, text in _PROTOCOLS.items() if name in used],
        "paths": _paths(table, spec, schemas),
        "components": {"schemas": components},
    }


def seldon_document(routes: Iterable[RouteDoc], *, server_version: str, spec: ModelSpec = _ANY_MODEL) -> dict[str, Any]:
    """`/seldon.json`: the document of Seldon's paths alone."""
    seldon = [route for route in routes if route.protocol == "seldon"]
    return document(spec, title="Seldon Core v1", server_version=server_version, routes=seldon)


def _schemas(table: list[RouteDoc]) -> tuple[dict[type, dict[str, Any]], dict[str, Any]]:
    """A reference for each body's struct, and the components that they refer to."""
    bodies = [body for route in table for body in (route.request, route.response, _ERRORS.get(route.protocol))]
    types = list(dict.fromkeys(body for body in bodies if body is not None))
    found, components = msgspec.json.schema_components(types, schema_hook=_schema_of, ref_template=_REF)
    return dict(zip(types, found, strict=True)), components


def _schema_of(kind: type) -> dict[str, Any]:
    """The schema of a type that msgspec does not know."""
    if kind is np.ndarray:
        return {"type": "array", "description": "Numbers or text, nested one list an axis"}
    raise NotImplementedError(kind)


def _paths(table: list[RouteDoc], spec: ModelSpec, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in table:
        item = paths.setdefault(route.path, {})
        variables = [_variable(name, spec) for name in _VARIABLE.findall(route.path)]
        if variables:
            item["parameters"] = variables
        for method in route.methods:
            item[method.lower()] = _operation(route, method, spec, schemas)
    return paths


def _variable(name: str, spec: ModelSpec) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name in {"model", "version"}:
        schema["enum"] = [spec.name if name == "model" else spec.version]
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _operation(route: RouteDoc, method: str, spec: ModelSpec, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [route.protocol],
        "summary": route.summary,
        "operationId": _identifier(method, route.path),
        "responses": _responses(route, schemas),
    }
    if route.request is not None:
        body = {"application/json": _body(route.request, spec, schemas)}
        if method == "GET":
            operation["parameters"] = [{"name": "json", "in": "query", "required": True, "content": body}]
        else:
            body.update([_OTHER_BODIES[route.request]] if route.request in _OTHER_BODIES else [])
            operation["requestBody"] = {"required": True, "content": body}
    return operation


def _identifier(method: str, path: str) -> str:
    return "_".join([method.lower(), *re.findall(r"\w+", path)])


def _body(request: type, spec: ModelSpec, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schemas[request]}
    sample = _SAMPLES[request](spec) if request in _SAMPLES else None
    if sample is not None and len(msgspec.json.encode(sample)) <= _SAMPLE_SIZE:
        body["example"] = sample
    return body


def _responses(route: RouteDoc, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "Success"}
    if route.path.endswith("/generate_stream"):
        answer["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif route.response is not None:
        answer["content"] = {"application/json": {"schema": schemas[route.response]}}
    responses = {"200": answer}
    error = _ERRORS.get(route.protocol)
    if error is not None:
        content = {"application/json": {"schema": schemas[error]}}
        responses["default"] = {"description": "What went wrong", "content": content}
    return responses

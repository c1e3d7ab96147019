"""Sample requests for a model, made from its signature: what the OpenAPI document, the docs page and the start show.

Free axes are 1 first and 4 behind; values are small and made up. A model without a signature gets one row of four
numbers. Every sample is of the right shape and datatypes, however large that is.
"""

from __future__ import annotations

import math
import shlex
from typing import Any
from urllib.parse import quote

import numpy as np

from prefork.payload import ModelSpec, TensorSpec
from prefork.protocols.fitting import only_input

_ROW = [5.1, 3.5, 1.4, 0.2]
_SHOWN = 4096
"""The most elements that a shell line carries."""


def v2_request(spec: ModelSpec) -> dict[str, Any]:
    """An InferRequest with every required input."""
    return {"inputs": [_v2_input(tensor) for tensor in _inputs(spec)]}


def generate_request(spec: ModelSpec) -> dict[str, Any]:
    """A generate request: each required input as a scalar or a flat list."""
    return {t.name: _elements(t)[0] if _count(t) == 1 else _elements(t) for t in _inputs(spec)}


def seldon_message(spec: ModelSpec) -> dict[str, Any]:
    """A SeldonMessage: a matrix, its columns named where the model names them, else jsonData by input."""
    inputs = _inputs(spec)
    if spec.inputs is None or len(inputs) == 1:
        return {"data": {"ndarray": _nested(inputs[0])}}
    if all(_count(tensor) == 1 for tensor in inputs):
        row = [_elements(tensor)[0] for tensor in inputs]
        return {"data": {"names": [tensor.name for tensor in inputs], "ndarray": [row]}}
    return {"jsonData": {tensor.name: _nested(tensor) for tensor in inputs}}


def seldon_messages(spec: ModelSpec) -> dict[str, Any]:
    """A SeldonMessageList of two."""
    return {"seldonMessages": [seldon_message(spec)] * 2}


def seldon_feedback(spec: ModelSpec) -> dict[str, Any]:
    """A Feedback on a sample request."""
    return {"request": seldon_message(spec), "reward": 1.0, "truth": {"data": {"ndarray": [[1]]}}}


def v1_request(spec: ModelSpec) -> dict[str, Any]:
    """TF-Serving's request: rows where every input has a free first axis, else columns."""
    inputs = _inputs(spec)
    nested = {tensor.name: _nested(tensor) for tensor in inputs}
    if spec.inputs is None or (len(inputs) == 1 and only_input(spec) is not None and _shape(inputs[0])):
        return {"instances": nested[inputs[0].name]}
    if all(_shape(tensor)[:1] == [1] for tensor in inputs):
        return {"instances": [{name: value[0] for name, value in nested.items()}]}
    return {"inputs": nested}


def mlflow_request(spec: ModelSpec) -> dict[str, Any]:
    """MLflow's request: the inputs by name, or the rows of a model without a signature."""
    inputs = _inputs(spec)
    if spec.inputs is None:
        return {"inputs": _nested(inputs[0])}
    return {"inputs": {tensor.name: _nested(tensor) for tensor in inputs}}


def has_json_form(spec: ModelSpec) -> bool:
    """Whether V2's JSON can carry every input: it has no FP16 and no BF16."""
    return not any(tensor.datatype in {"FP16", "BF16"} for tensor in _inputs(spec))


def curl(spec: ModelSpec, url: str) -> str:
    """A shell line that asks the model for a prediction at the server's `url`, and shows the answer."""
    flags, path, body = _call(spec)
    target = shlex.quote(url.rstrip("/") + path)
    if sum(map(_count, _inputs(spec))) <= _SHOWN:
        return f"curl {flags} {target} -d {shlex.quote(_compact(body))}"
    return f"python3 -c {shlex.quote(_program(body))} | curl {flags} {target} -d @-"


def _call(spec: ModelSpec) -> tuple[str, str, dict[str, Any]]:
    """curl's flags, the path and the body of the protocol that suits the model best."""
    name = quote(spec.name, safe="")
    if spec.streams:
        return "-sN", f"/v2/models/{name}/generate_stream", generate_request(spec)
    if spec.inputs is None:
        return "-s -H 'Content-Type: application/json'", "/predict", seldon_message(spec)
    if has_json_form(spec):
        return "-s", f"/v2/models/{name}/infer", v2_request(spec)
    return "-s", f"/v1/models/{name}:predict", {"inputs": {t.name: _nested(t) for t in _inputs(spec)}}


def _program(body: dict[str, Any]) -> str:
    """Python that prints a body of long lists, each written as its first element repeated."""
    rows: list[str] = []
    text = _compact(_shortened(body, rows))
    for at, row in enumerate(rows):
        text = text.replace(f'"\\u0000{at}"', row)
    return f"import json; true, false = True, False; print(json.dumps({text}))"


def _shortened(value: Any, rows: list[str]) -> Any:
    """The value with marks instead of its long flat lists, whose Python expressions go to `rows`."""
    if isinstance(value, dict):
        return {name: _shortened(item, rows) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > 64 and not isinstance(value[0], list | dict):
        rows.append(f"[{_compact(value[0])}] * {len(value)}")
        return f"\0{len(rows) - 1}"
    return [_shortened(item, rows) for item in value]


def _compact(body: Any) -> str:
    import json

    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def _inputs(spec: ModelSpec) -> list[TensorSpec]:
    """The inputs that a sample has: the required ones, or all where none is."""
    if spec.inputs is None:
        return [TensorSpec("FP64", (1, len(_ROW)), "X")]
    return [tensor for tensor in spec.inputs if not tensor.optional] or list(spec.inputs)


def _v2_input(tensor: TensorSpec) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "shape": _shape(tensor),
        "datatype": tensor.datatype or "FP64",
        "data": _elements(tensor),
    }


def _shape(tensor: TensorSpec) -> list[int]:
    if tensor.shape is None:
        return [1]
    return [size if size >= 0 else (4 if axis else 1) for axis, size in enumerate(tensor.shape)]


def _count(tensor: TensorSpec) -> int:
    return math.prod(_shape(tensor))


def _elements(tensor: TensorSpec) -> list[Any]:
    count = _count(tensor)
    if tensor.datatype == "BOOL":
        return [at % 2 == 0 for at in range(count)]
    if tensor.datatype == "BYTES":
        return ["text"] * count
    if "INT" in tensor.datatype:
        return [at % 100 + 1 for at in range(count)]
    return [_ROW[at % len(_ROW)] for at in range(count)]


def _nested(tensor: TensorSpec) -> Any:
    found = np.empty(_count(tensor), dtype=object)
    found[:] = _elements(tensor)
    return found.reshape(_shape(tensor)).tolist()

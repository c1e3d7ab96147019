"""The Open Inference Protocol V2's infer, metadata and errors: requests to payloads and answers to responses.

A request is JSON, or JSON with binary tensors behind it:

    | JSON, Inference-Header-Content-Length bytes | 1st binary input | 2nd binary input | ...

where the inputs with `parameters.binary_data_size` follow in their order. A length of 0 is a raw request: the whole body
is the model's one input. Binary responses have the same layout. Every refusal is a BadRequest that names the field.
Source: the protocol's REST API and Triton's binary data, classification and parameters extensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from prefork.errors import BadAnswer, BadRequest, NotImplementedHere, PreforkError
from prefork.http import Buffer, Request, Response
from prefork.payload import Kind, ModelSpec, Payload, TensorSpec
from prefork.protocols import json, outputs, tensors
from prefork.protocols.classification import classify
from prefork.protocols.outputs import Nan
from prefork.protocols.tensors import Array
from prefork.protocols.v2_types import InferInput, InferRequest, RequestedOutput

LENGTH = b"inference-header-content-length"
_LENGTH_NAME = "Inference-Header-Content-Length"
_NO_TAIL = memoryview(b"")
_ONE_FIELD = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'."
)

_request: json.Wire[InferRequest] = json.Wire(InferRequest, arrays={"inputs": [{"data": json.ARRAY_FLAT}]})


class WantedOutput(msgspec.Struct, frozen=True, gc=False):
    """One requested output: as binary data or as JSON, whole (0) or only its best `classes`."""

    name: str
    binary: bool = False
    classes: int = 0


class Wanted(msgspec.Struct, frozen=True):
    """What the request asks of the response. `outputs` None is all of them, as binary data if `binary`."""

    id: str = ""
    outputs: tuple[WantedOutput, ...] | None = None
    binary: bool = False


_ALL = Wanted()
_RAW = Wanted(binary=True)


# Requests


def decode(request: Request, spec: ModelSpec, *, max_depth: int = json.MAX_DEPTH) -> tuple[Payload, Wanted]:
    """The request's tensors by name, in the request's order, and what it asks of the response.

    Binary tensors are writable views on one copy of the body. Raises BadRequest, and NotImplementedHere for a model
    that streams and for shared memory.
    """
    if spec.streams:
        raise NotImplementedHere("HTTP end point doesn't support models with decoupled transaction policy")
    if LENGTH in request.headers:
        return _decode_binary(request, spec, max_depth)
    if not request.body:
        raise BadRequest("the request body is empty")
    return _decode(_request.decode(request.body, max_depth), _NO_TAIL, spec)


def _decode_binary(request: Request, spec: ModelSpec, max_depth: int) -> tuple[Payload, Wanted]:
    size = sum(map(len, request.chunks))
    head = _head(request.header(LENGTH), size)
    if not size:
        raise BadRequest("the request body is empty")
    body = request.aligned(head)
    if head:
        return _decode(_request.decode(bytes(body[:head]), max_depth), body[head:], spec)
    name, array = _raw_input(body, spec)
    return Payload(Kind.TENSORS, {name: array}), _RAW


def _head(text: str, size: int) -> int:
    """The length of the JSON that the header gives, for a body of `size` bytes."""
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(f"{_LENGTH_NAME} must be a number of bytes, got: {text[:40]!r}")
    digits = text.lstrip("0") or "0"
    if len(digits) > 18 or int(digits) > size:
        raise BadRequest(f"inference header size should be in range (0, {size}), got: {digits[:40]}")
    return int(digits)


def _decode(wire: InferRequest, tail: memoryview, spec: ModelSpec) -> tuple[Payload, Wanted]:
    known = None if spec.inputs is None else {tensor.name: tensor for tensor in spec.inputs}
    found: dict[str, Array] = {}
    for tensor in wire.inputs:
        _check_input(tensor, known, found, spec.name)
        size = 0
        if tensor.parameters:
            size = _binary_size(tensor, len(tail), spec.name)
        found[tensor.name] = _array(tensor, tail[:size], spec.name)
        tail = tail[size:] if size else tail
    if tail:
        raise BadRequest(f"unexpected additional input data for model '{spec.name}'")
    check_inputs(found, spec)
    parameters, binary = _parameters(wire.parameters) if wire.parameters else (None, False)
    if not (wire.id or wire.outputs or binary):
        return Payload(Kind.TENSORS, found, parameters=parameters), _ALL
    requested = _requested(wire.outputs, spec) if wire.outputs else None
    return Payload(Kind.TENSORS, found, parameters=parameters), Wanted(wire.id, requested, binary)


def _check_input(
    tensor: InferInput, known: Mapping[str, TensorSpec] | None, found: Mapping[str, Array], model: str
) -> None:
    if tensor.name in found:
        raise BadRequest(f"input '{tensor.name}' already exists in request")
    if not tensors.is_datatype(tensor.datatype):
        raise BadRequest(f"invalid datatype for input {tensor.name}")
    if known is None:
        return
    expected = known.get(tensor.name)
    if expected is None:
        raise BadRequest(f"unexpected inference input '{tensor.name}' for model '{model}'")
    if expected.datatype not in ("", tensor.datatype):
        raise BadRequest(
            f"inference input '{tensor.name}' data-type is '{tensor.datatype}', but model '{model}' expects '{expected.datatype}'"
        )
    if not expected.accepts(tuple(tensor.shape)):
        raise BadRequest(
            f"unexpected shape for input '{tensor.name}' for model '{model}'. "
            f"Expected {tensors.text(expected.shape or ())}, got {tensors.text(tensor.shape)}"
        )


def _array(tensor: InferInput, data: memoryview, model: str) -> Array:
    if tensor.data is UNSET:
        if tensor.parameters is None or "binary_data_size" not in tensor.parameters:
            raise BadRequest(f"{_ONE_FIELD} But no field is set for input '{tensor.name}'")
        return tensors.from_binary(tensor.name, tensor.datatype, tensor.shape, data, model)
    if tensor.datatype in ("FP16", "BF16"):
        raise BadRequest(
            f"receiving {tensor.datatype} data via JSON is not supported. "
            f"Please use the binary data format for input {tensor.name}"
        )
    return tensors.from_json(tensor.name, tensor.datatype, tensor.shape, tensor.data)


def _binary_size(tensor: InferInput, rest: int, model: str) -> int:
    """How many of the `rest` bytes behind the JSON are this input's."""
    parameters = tensor.parameters or {}
    _refuse_shared_memory(parameters, f"input '{tensor.name}'")
    if "binary_data_size" not in parameters:
        return 0
    if tensor.data is not UNSET:
        raise BadRequest(f"{_ONE_FIELD} But set 'data' 'binary_data_size' for input '{tensor.name}'")
    size = parameters["binary_data_size"]
    if type(size) is not int or size < 0:
        raise BadRequest(f"'binary_data_size' of input '{tensor.name}' must be a number of bytes")
    if size > rest:
        raise BadRequest(
            f"unexpected size for input '{tensor.name}', expecting {size - rest} additional bytes for model '{model}'"
        )
    return size


def _refuse_shared_memory(parameters: Mapping[str, Any], where: str) -> None:
    if "shared_memory_region" in parameters:
        raise NotImplementedHere(f"'shared_memory_region' of {where}: client shared memory is not supported")


def _raw_input(body: memoryview, spec: ModelSpec) -> tuple[str, Array]:
    """The one input that a body without JSON is, its variable axis as long as the body makes it."""
    if spec.inputs is None or len(spec.inputs) != 1:
        count = "unnamed" if spec.inputs is None else len(spec.inputs)
        raise BadRequest(
            f"Raw request must only have 1 input (found 1) to be deduced but got {count} inputs in '{spec.name}' model"
        )
    (tensor,) = spec.inputs
    shape = (-1,) if tensor.shape is None else tensor.shape
    if tensor.datatype == "":
        raise BadRequest(f"The datatype of the raw input '{tensor.name}' can not be deduced: the model takes any")
    if shape.count(-1) > 1:
        raise BadRequest(
            f"The shape of the raw input '{tensor.name}' can not be deduced "
            "because there are more than one variable-sized dimension"
        )
    if tensor.datatype == "BYTES":
        if shape not in ((1,), (-1,)):
            raise BadRequest(f"For BYTE datatype raw input '{tensor.name}', the model must have input shape [1]")
        return tensor.name, tensors.object_array([bytes(body)])
    solved = tensors.solve(shape, len(body) // tensors.SIZES[tensor.datatype])
    return tensor.name, tensors.from_binary(tensor.name, tensor.datatype, solved, body, spec.name)


def check_inputs(found: Iterable[str], spec: ModelSpec) -> None:
    """Raise BadRequest if an input that the model cannot do without is not among those found."""
    given = list(found)
    if spec.inputs is None:
        if not given:
            raise BadRequest(f"expected at least 1 input but got 0 inputs for model '{spec.name}'")
        return
    if len(given) == len(spec.inputs):
        return
    missing = [tensor.name for tensor in spec.inputs if not tensor.optional and tensor.name not in given]
    if missing:
        raise BadRequest(
            f"expected {len(spec.inputs)} inputs but got {len(given)} inputs for model '{spec.name}'. "
            f"Got input(s) {given}, but missing required input(s) {missing}. Please provide all required input(s)."
        )


def check_parameter(name: str, value: object) -> None:
    """Raise BadRequest for a parameter that is no boolean, number or string, or whose name is reserved."""
    if name.startswith("triton_"):
        raise BadRequest(f"parameter keys starting with 'triton_' are reserved for Triton usage: '{name}'")
    if not isinstance(value, bool | int | float | str):
        raise BadRequest(
            f"parameter '{name}' has invalid type. It should be either 'int', 'bool', 'float' or 'string'."
        )


def _parameters(given: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """The parameters that are the model's, and whether all outputs are wanted as binary data."""
    for name, value in given.items():
        check_parameter(name, value)
    binary = given.pop("binary_data_output", False)
    if not isinstance(binary, bool):
        raise BadRequest("parameter 'binary_data_output' must be a boolean")
    return given or None, binary


def _requested(given: list[RequestedOutput], spec: ModelSpec) -> tuple[WantedOutput, ...]:
    known = None if spec.outputs is None else {tensor.name for tensor in spec.outputs}
    wanted: dict[str, WantedOutput] = {}
    for output in given:
        if known is not None and output.name not in known:
            raise _unexpected_output(output.name, spec)
        if output.name in wanted:
            raise BadRequest(f"output '{output.name}' already exists in request")
        wanted[output.name] = _wanted(output.name, output.parameters or {})
    return tuple(wanted.values())


def _wanted(name: str, parameters: Mapping[str, Any]) -> WantedOutput:
    _refuse_shared_memory(parameters, f"output '{name}'")
    binary, classes = parameters.get("binary_data", False), parameters.get("classification", 0)
    if type(binary) is not bool:
        raise BadRequest(f"'binary_data' of output '{name}' must be a boolean")
    if type(classes) is not int or classes < 0:
        raise BadRequest(f"'classification' of output '{name}' must be a number of classes")
    return WantedOutput(name, binary, classes)


def _unexpected_output(name: str, spec: ModelSpec) -> BadRequest:
    return BadRequest(f"unexpected inference output '{name}' for model '{spec.name}'")


# Responses


def encode(answer: Payload, wanted: Wanted, spec: ModelSpec, nan: Nan = "null") -> Response:
    """The response with the outputs that were asked for, in that order; binary data is the arrays' own memory.

    Raises BadAnswer for an answer that V2 cannot carry, BadRequest for an output that there is not and for one that
    JSON cannot carry.
    """
    found = outputs.named(answer, nan)
    head: dict[str, Any] = {"id": wanted.id} if wanted.id else {}
    head["model_name"] = spec.name
    head["model_version"] = spec.version
    if answer.parameters:
        head["parameters"] = answer.parameters
    tail: list[Buffer] = []
    head["outputs"] = [
        _output(one, _find(found, one.name, spec), spec, tail) for one in wanted.outputs or _every(found, wanted.binary)
    ]
    body = json.encode(head, nan=nan)
    if not tail:
        return Response(body)
    headers = [(_LENGTH_NAME, str(len(body)))]
    return Response([body, *tail], content_type="application/octet-stream", headers=headers)


def _every(found: Iterable[str], binary: bool) -> list[WantedOutput]:  # noqa: FBT001 - a field of Wanted
    return [WantedOutput(name, binary) for name in found]


def _find(found: Mapping[str, Array], name: str, spec: ModelSpec) -> Array:
    array = found.get(name)
    if array is None:
        if spec.outputs is None:
            raise _unexpected_output(name, spec)
        raise BadAnswer(f"model '{spec.name}' did not give the output '{name}'")
    return array


def _output(wanted: WantedOutput, array: Array, spec: ModelSpec, tail: list[Buffer]) -> dict[str, Any]:
    """One output's object; its binary data, if it has any, goes to the tail."""
    name = wanted.name
    datatype = outputs.datatype(name, array, _declared(spec.outputs, name) if spec.outputs else None)
    if wanted.classes:
        array, datatype = classify(name, array, datatype, wanted.classes, spec.labels.get(name, ())), "BYTES"
    shown: dict[str, Any] = {"name": name, "datatype": datatype, "shape": array.shape}
    if not wanted.binary:
        if datatype in ("FP16", "BF16"):
            raise BadRequest(
                f"sending {datatype} data via JSON is not supported. Please use the binary data format for output {name}"
            )
        shown["data"] = tensors.to_json(name, array, datatype)
        return shown
    data = tensors.to_binary(name, array, datatype)
    shown["parameters"] = {"binary_data_size": len(data)}
    if len(data):
        tail.append(data)
    return shown


def _declared(specs: Sequence[TensorSpec], name: str) -> TensorSpec | None:
    for spec in specs:
        if spec.name == name:
            return spec
    return None


def encode_error(error: PreforkError) -> Response:
    """Any failure: `{"error": message}` with the error's status and headers."""
    return Response(json.encode({"error": error.message}), status=error.status, headers=error.headers)


# Metadata


def encode_metadata(spec: ModelSpec, versions: Sequence[str] = ()) -> Response:
    """What the model takes and gives, and which of its versions are ready, if not only this one. What it does not say is shown as FP64 and [-1], no inputs or outputs as []."""
    return Response(
        json.encode(
            {
                "name": spec.name,
                "versions": list(versions) or [spec.version],
                "platform": spec.platform,
                "inputs": [_metadata(tensor) for tensor in spec.inputs or ()],
                "outputs": [_metadata(tensor) for tensor in spec.outputs or ()],
            }
        )
    )


def _metadata(tensor: TensorSpec) -> dict[str, Any]:
    shape = (-1,) if tensor.shape is None else tensor.shape
    return {"name": tensor.name, "datatype": tensor.datatype or "FP64", "shape": shape}


def encode_server(name: str, version: str, extensions: Iterable[str]) -> Response:
    """What the server is called and which of the protocol's extensions it has."""
    return Response(json.encode({"name": name, "version": version, "extensions": list(extensions)}))

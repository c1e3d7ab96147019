"""V2's generate extension: one flat JSON object in, one flat JSON object out for each answer.

A key is an input's name or, for a model that names its inputs, a parameter's; the members of `parameters` count as
keys. Tensors are scalars or lists, and take their shape from the model's metadata. Source: Triton's generate extension.
"""

from __future__ import annotations

import json as standard_json
from collections import Counter
from typing import Any

from prefork.errors import BadRequest, PreforkError
from prefork.http import Request
from prefork.payload import Kind, ModelSpec, Payload, TensorSpec
from prefork.protocols import json, outputs, tensors
from prefork.protocols.outputs import Nan
from prefork.protocols.tensors import Array
from prefork.protocols.v2 import check_inputs, check_parameter

_request: json.Wire[dict[str, Any]] = json.Wire(dict[str, Any])


def decode_generate(request: Request, spec: ModelSpec, *, max_depth: int = json.MAX_DEPTH) -> tuple[Payload, str]:
    """The request's tensors by name with its parameters, and its id (empty when it has none).

    For a model without named inputs every key but `id` and `parameters` is a tensor. Raises BadRequest.
    """
    if not request.body:
        raise BadRequest("the request body is empty")
    message = _request.decode(request.body, max_depth)
    _check_duplicates(request.body, spec)
    request_id = message.pop("id", "")
    if not isinstance(request_id, str):
        raise BadRequest("Unable to parse 'id': attempt to access JSON non-string as string")
    nested = message.pop("parameters", None) or {}
    if not isinstance(nested, dict):
        raise BadRequest("Unable to parse 'parameters': attempt to access JSON non-object as object")
    found, parameters = _free(message, nested) if spec.inputs is None else _named(message, nested, spec.inputs)
    check_inputs(found, spec)
    for name, value in parameters.items():
        check_parameter(name, value)
    return Payload(Kind.TENSORS, found, parameters=parameters or None), request_id


def _check_duplicates(body: bytes, spec: ModelSpec) -> None:
    """Raise BadRequest for an input that is there twice; JSON decoders keep the last."""
    names = {tensor.name for tensor in spec.inputs or ()}
    if all(body.count(b'"%b"' % name.encode()) < 2 for name in names):
        return
    # Each object is replaced by its keys as it closes, so that the last one seen is the outermost.
    keys: list[str] = standard_json.loads(body, object_pairs_hook=lambda pairs: [key for key, _ in pairs])
    for name, count in Counter(keys).items():
        if count > 1 and name in names:
            raise _duplicate(name)


def _duplicate(name: str) -> BadRequest:
    return BadRequest(f"input '{name}' already exists in request")


def _free(message: dict[str, Any], nested: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """The tensors and parameters for a model without named inputs: numpy finds their datatypes."""
    return {name: _inferred(name, value) for name, value in message.items()}, nested


def _named(
    message: dict[str, Any], nested: dict[str, Any], specs: tuple[TensorSpec, ...]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The tensors and parameters for a model that names its inputs."""
    known = {spec.name: spec for spec in specs}
    found: dict[str, Array] = {}
    parameters: dict[str, Any] = {}
    for name, value in (*message.items(), *nested.items()):
        if name not in known:
            parameters[name] = value
        elif name in found:
            raise _duplicate(name)
        else:
            found[name] = _tensor(known[name], value)
    return found, parameters


def _tensor(spec: TensorSpec, value: object) -> Array:
    elements = value if isinstance(value, list) else [value]
    if not spec.datatype:
        array = _inferred(spec.name, value)
        return array if spec.shape is None else _shaped(spec, array)
    return _shaped(spec, tensors.flat(spec.name, spec.datatype, elements))


def _shaped(spec: TensorSpec, array: Array) -> Array:
    shape = tensors.solve((-1,) if spec.shape is None else spec.shape, array.size)
    if tensors.element_count(spec.name, shape) != array.size:
        raise BadRequest(
            f"unexpected shape for input '{spec.name}'. Expected {tensors.text(spec.shape or ())}, got {array.size} elements"
        )
    return array.reshape(shape)


def _inferred(name: str, value: object) -> Array:
    array = outputs.as_array(value)
    if array is None:
        raise BadRequest(f"Unable to parse '{name}': attempt to access JSON non-tensor as tensor")
    if array.dtype == object:
        return tensors.flat(name, "BYTES", array.reshape(-1).tolist()).reshape(array.shape)
    return array


def encode_generated(answer: Payload, spec: ModelSpec, request_id: str, nan: Nan = "null") -> bytes:
    """One answer's JSON object; an output of one element is that element, any other the flat list of its elements.

    Raises BadAnswer for an answer that V2 cannot carry, BadRequest for BYTES that are not UTF-8.
    """
    found = outputs.named(answer, nan)
    head: dict[str, Any] = {"id": request_id} if request_id else {}
    head |= {name: _shown(name, array) for name, array in found.items()}
    head |= {"model_name": spec.name, "model_version": spec.version}
    return json.encode(head, nan=nan)


def _shown(name: str, array: Array) -> object:
    elements = tensors.to_json(name, array, outputs.datatype(name, array))
    return elements[0] if len(elements) == 1 else elements


def encode_stream_error(error: PreforkError) -> bytes:
    """A failure behind the first event of a stream, as the JSON object of one more event."""
    return json.encode({"error": error.message})

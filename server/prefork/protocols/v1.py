"""TF-Serving's REST API, which KServe calls V1: `instances` by rows or `inputs` by columns in, the same form out.

Format: https://www.tensorflow.org/tfx/serving/api_rest. `signature_name` reaches the model as a parameter; keys that
the format does not have are ignored, as KServe's clients expect.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta

from prefork.errors import BadAnswer, BadRequest, NotImplementedHere, PreforkError
from prefork.http import Request, Response
from prefork.payload import Kind, ModelSpec, Payload, TensorSpec
from prefork.protocols import frames, json, values

Nan = Literal["null", "literal"]


class PredictRequest(msgspec.Struct, gc=False):
    """Exactly one of `instances` and `inputs`."""

    instances: Annotated[Any, Meta(description="Row format: a list of values, or of objects {name: value}.")] = UNSET
    inputs: Annotated[Any, Meta(description="Column format: one value, or an object {name: value}.")] = UNSET
    signature_name: str | None = None


class PredictResponse(msgspec.Struct, gc=False):
    """`predictions` for a request by rows, `outputs` for one by columns."""

    predictions: Annotated[Any, Meta(description="A list of values, or of objects {name: value}.")] = UNSET
    outputs: Annotated[Any, Meta(description="One value, or an object {name: value}.")] = UNSET


class VersionError(msgspec.Struct):
    """TF-Serving's StatusProto."""

    error_code: str = "OK"
    error_message: str = ""


class VersionStatus(msgspec.Struct):
    """One served version."""

    version: str
    state: str = "AVAILABLE"
    status: VersionError = msgspec.field(default_factory=VersionError)


class ModelStatus(msgspec.Struct):
    """TF-Serving's GetModelStatusResponse."""

    model_version_status: list[VersionStatus]


class PredictError(msgspec.Struct):
    """What went wrong."""

    error: str


class Form(enum.Enum):
    """How the request was laid out, and so how the answer is."""

    ROW = "predictions"
    COLUMN = "outputs"


_WIRE: json.Wire[PredictRequest] = json.Wire(PredictRequest, arrays={"instances": json.ARRAY, "inputs": json.ARRAY})

_DTYPES = {
    "BOOL": "DT_BOOL",
    "UINT8": "DT_UINT8",
    "UINT16": "DT_UINT16",
    "UINT32": "DT_UINT32",
    "UINT64": "DT_UINT64",
    "INT8": "DT_INT8",
    "INT16": "DT_INT16",
    "INT32": "DT_INT32",
    "INT64": "DT_INT64",
    "FP16": "DT_HALF",
    "BF16": "DT_BFLOAT16",
    "FP32": "DT_FLOAT",
    "FP64": "DT_DOUBLE",
    "BYTES": "DT_STRING",
}


def decode(request: Request, spec: ModelSpec, *, max_depth: int = json.MAX_DEPTH) -> tuple[Payload, Form]:
    """The payload of a `:predict` body, and the form that the answer takes.

    A bare value is a TENSOR (text is `str_`), or the one input of a model with a signature; named values are TENSORS
    (text is `bytes`). Raises BadRequest naming the field, NotImplementedHere for a model that streams.
    """
    if spec.streams:
        raise NotImplementedHere(f"model '{spec.name}' streams its answers; use /v2/models/{spec.name}/generate_stream")
    body = _WIRE.decode(request.body, max_depth)
    if (body.instances is UNSET) == (body.inputs is UNSET):
        raise BadRequest("the body must have exactly one of 'instances' (rows) and 'inputs' (columns)")
    if body.inputs is UNSET:
        payload, form = frames.rows(body.instances, spec), Form.ROW
    else:
        payload, form = frames.columns(body.inputs, spec), Form.COLUMN
    if body.signature_name:
        payload.parameters = {"signature_name": body.signature_name}
    return payload, form


def encode(answer: Payload, form: Form, spec: ModelSpec, nan: Nan = "null") -> Response:
    """The answer in the request's form. Raises BadAnswer for what has no rows where rows were asked for.

    BYTES elements are text where they are UTF-8, else `{"b64": ...}`; always that in outputs named `*_bytes`.
    """
    if answer.kind is not Kind.TENSORS:
        found = _unnamed(answer, spec)
    elif len(answer.value) == 1:
        ((name, array),) = answer.value.items()
        found = values.readable(array, name)
    elif form is Form.ROW:
        found = _rows(answer.value)
    else:
        found = {name: values.readable(array, name) for name, array in answer.value.items()}
    return Response(json.encode({form.value: found}, nan=nan))


def encode_error(error: PreforkError) -> Response:
    """`{"error": text}` with the error's status and headers."""
    body = msgspec.json.encode(PredictError(error.message))
    return Response(body, status=error.status, headers=error.headers)


def encode_status(spec: ModelSpec) -> Response:
    """GET /v1/models/NAME: the served version is available."""
    return Response(msgspec.json.encode(ModelStatus([VersionStatus(spec.version)])))


def encode_metadata(spec: ModelSpec) -> Response:
    """GET /v1/models/NAME/metadata: GetModelMetadataResponse with the model's signature as `serving_default`.

    Sizes are strings, as protobuf's JSON writes int64.
    """
    signature = {
        "inputs": {tensor.name: _tensor_info(tensor) for tensor in spec.inputs or ()},
        "outputs": {tensor.name: _tensor_info(tensor) for tensor in spec.outputs or ()},
        "method_name": "tensorflow/serving/predict",
    }
    definition = {
        "@type": "type.googleapis.com/tensorflow.serving.SignatureDefMap",
        "signature_def": {"serving_default": signature},
    }
    model = {"name": spec.name, "signature_name": "", "version": spec.version}
    return Response(msgspec.json.encode({"model_spec": model, "metadata": {"signature_def": definition}}))


def _tensor_info(tensor: TensorSpec) -> dict[str, Any]:
    dim = [{"size": str(size), "name": ""} for size in tensor.shape or ()]
    return {
        "dtype": _DTYPES.get(tensor.datatype, "DT_INVALID"),
        "tensor_shape": {"dim": dim, "unknown_rank": tensor.shape is None},
        "name": tensor.name,
    }


def _unnamed(answer: Payload, spec: ModelSpec) -> Any:
    if answer.kind is Kind.TENSOR and spec.outputs and len(spec.outputs) == 1:
        return values.readable(answer.value, spec.outputs[0].name)
    return values.answered(answer)


def _rows(outputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Several outputs as one object a row."""
    counts = set(map(_count, outputs.values()))
    if len(counts) > 1 or None in counts:
        names = ", ".join(f"'{name}'" for name in outputs)
        raise BadAnswer(f"the outputs {names} have no common first dimension; ask with 'inputs' (columns) instead")
    by_name = {name: values.readable(array, name) for name, array in outputs.items()}
    rows = counts.pop() if counts else 0
    return [{name: array[at] for name, array in by_name.items()} for at in range(rows or 0)]


def _count(output: Any) -> int | None:
    """The size of the first axis of an array or a list; None where there is none."""
    if isinstance(output, list):
        return len(output)
    return int(output.shape[0]) if isinstance(output, np.ndarray) and output.ndim else None

"""The Open Inference Protocol V2's JSON objects as typed structs.

Requests are decoded into them; all of them describe the protocol in the OpenAPI document. Unknown fields are
ignored, as the protocol asks for. Source of the format: the Open Inference Protocol's REST API with the binary tensor
data, classification, parameters and generate extensions.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

Datatype = Annotated[
    str,
    Meta(
        description="BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64 or BYTES",
        examples=["FP32"],
    ),
]
Axis = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Shape = Annotated[list[Axis], Meta(description="One size an axis", examples=[[1, 4]])]
Parameters = Annotated[dict[str, Any], Meta(description="Names to a boolean, an integer, a number or a string")]
Data = Annotated[
    Any,
    Meta(
        description="The elements in row-major order, flat or nested: true and false for BOOL, integers for INT and UINT, "
        "numbers for FP, strings for BYTES. FP16 and BF16 travel as binary data only"
    ),
]


class InferInput(msgspec.Struct):
    """One named input tensor; its elements are `data`, or binary data of `parameters.binary_data_size` bytes."""

    name: str
    shape: Shape
    datatype: Datatype
    parameters: Parameters | None = None
    data: Data | UnsetType = UNSET


class RequestedOutput(msgspec.Struct):
    """An output that is asked for.

    `parameters.binary_data`: true for binary data behind the JSON. `parameters.classification`: the number of best
    classes to answer instead of the tensor.
    """

    name: str
    parameters: Parameters | None = None


class InferRequest(msgspec.Struct):
    """An inference request.

    `outputs` absent or empty asks for all of them; `parameters.binary_data_output` asks for all of those as binary data.
    Other parameters reach the model.
    """

    inputs: list[InferInput]
    id: str = ""
    parameters: Parameters | None = None
    outputs: list[RequestedOutput] | None = None


class InferOutput(msgspec.Struct):
    """One named output tensor; its elements are `data`, or the binary data that `parameters.binary_data_size` counts."""

    name: str
    datatype: Datatype
    shape: Shape
    data: Data | UnsetType = UNSET
    parameters: Parameters | UnsetType = UNSET


class InferResponse(msgspec.Struct):
    """An inference response; `id` is the request's."""

    model_name: str
    model_version: str
    outputs: list[InferOutput]
    id: str | UnsetType = UNSET
    parameters: Parameters | UnsetType = UNSET


class GenerateRequest(msgspec.Struct):
    """A generate request: beside these two, every key is an input's name or a parameter's."""

    id: str = ""
    parameters: Parameters | None = None


class GenerateResponse(msgspec.Struct):
    """A generate response: beside these, every key is an output's name; an output of one element is that element."""

    model_name: str
    model_version: str
    id: str | UnsetType = UNSET


class TensorMetadata(msgspec.Struct):
    """What an input or output looks like; -1 is an axis of any size."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(msgspec.Struct):
    """What a model tells about itself."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(msgspec.Struct):
    """What the server tells about itself."""

    name: str
    version: str
    extensions: list[str]


class ErrorBody(msgspec.Struct):
    """Any failure: one sentence for a person."""

    error: str

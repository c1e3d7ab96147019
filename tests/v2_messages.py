"""V2 messages for tests: requests, responses read back, and the models of the recorded repository as functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from prefork.errors import ModelFailed, PreforkError, Unavailable
from prefork.http import Request, Response
from prefork.payload import DATATYPES, Kind, ModelSpec, Payload, TensorSpec
from prefork.protocols import generate, sse, v2

LENGTH = "Inference-Header-Content-Length"
ANY = ModelSpec("any")

# The models of the recorded repository


def spec(name: str, inputs: dict[str, Any], outputs: dict[str, Any], **more: Any) -> ModelSpec:
    """A ModelSpec out of {name: (datatype, shape)}."""
    both = [tuple(TensorSpec(*what, name=key) for key, what in side.items()) for side in (inputs, outputs)]
    return ModelSpec(name, inputs=both[0], outputs=both[1], **more)


ADD = spec("add", {"A": ("FP32", (-1, 4))}, {"B": ("FP32", (-1, 4))})
TWO = spec("two", {"X": ("INT32", (-1,)), "Y": ("FP64", (-1,))}, {"SUM": ("FP64", (-1,)), "TEXT": ("BYTES", (-1,))})
COUNT = spec("count", {"N": ("INT32", (1,))}, {"I": ("INT32", (1,))}, streams=True)
BFLOAT = spec("bfloat", {"X": ("BF16", (-1,))}, {"Y": ("BF16", (-1,))})


def echo_spec(datatype: str) -> ModelSpec:
    return spec(f"echo_{datatype.lower()}", {"X": (datatype, (-1,))}, {"Y": (datatype, (-1,))})


def answer(**outputs: Any) -> Payload:
    return Payload(Kind.TENSORS, outputs)


def add(request: Payload) -> Iterator[Payload]:
    yield answer(B=request.value["A"] + np.float32(1))


def echo(request: Payload) -> Iterator[Payload]:
    yield answer(Y=request.value["X"])


def two(request: Payload) -> Iterator[Payload]:
    x, y = request.value["X"], request.value["Y"]
    if x[0] == -1:
        raise ModelFailed("ValueError: minus one")
    if x[0] == -2:
        raise Unavailable("minus two")
    total = x.astype(np.float64) + y
    yield answer(SUM=total, TEXT=np.array([f"n{value:g}".encode() for value in total], dtype=object))


def count(request: Payload) -> Iterator[Payload]:
    for i in range(int(request.value["N"][0])):
        yield answer(I=np.array([i], dtype=np.int32))


Model = Callable[[Payload], Iterator[Payload]]
MODELS: dict[str, tuple[ModelSpec, Model]] = {
    "add": (ADD, add),
    "two": (TWO, two),
    "count": (COUNT, count),
    "bfloat": (BFLOAT, echo),
    **{f"echo_{name.lower()}": (echo_spec(name), echo) for name in DATATYPES},
}


# One request through decode, model and encode


def request(body: bytes | str | dict[str, Any], length: str | None = None, path: str = "") -> Request:
    """A POST; a dict is its JSON, `length` the header of the binary extension."""
    if isinstance(body, dict):
        body = json.dumps(body)
    data = body.encode() if isinstance(body, str) else body
    headers = {} if length is None else {LENGTH.lower().encode(): length.encode()}
    return Request("POST", path, b"", headers, [data[:7], data[7:]])


def with_tail(head: dict[str, Any], *tail: bytes) -> Request:
    """A request with binary data behind its JSON."""
    text = json.dumps(head).encode()
    return request(text + b"".join(tail), str(len(text)))


def serve(name: str, endpoint: str, incoming: Request, nan: Any = "null") -> Response:
    """What the service does with a request, without one."""
    described, model = MODELS[name]
    try:
        if endpoint == "infer":
            payload, wanted = v2.decode(incoming, described)
            (one,) = model(payload)
            return v2.encode(one, wanted, described, nan)
        payload, request_id = generate.decode_generate(incoming, described)
        shown = [generate.encode_generated(one, described, request_id, nan) for one in model(payload)]
    except PreforkError as error:
        return v2.encode_error(error)
    if endpoint == "generate":
        (body,) = shown
        return Response(body)
    return Response(b"".join(map(sse.event, shown)), content_type=sse.CONTENT_TYPE)


def body_of(response: Response) -> bytes:
    return b"".join(response.body)


def json_of(response: Response) -> Any:
    return json.loads(body_of(response))


def parts(response: Response) -> tuple[Any, bytes]:
    """The JSON head and the binary tail of a response."""
    length = int(dict(response.headers)[LENGTH])
    return json.loads(body_of(response)[:length]), body_of(response)[length:]


def typed(value: Any) -> Any:
    """A JSON value in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    return type(value).__name__, str(value)


def x(data: Any, datatype: str = "FP32", shape: Any = None, **more: Any) -> dict[str, Any]:
    """An input named X."""
    return {"name": "X", "shape": [len(data)] if shape is None else shape, "datatype": datatype, "data": data, **more}

"""Seldon Core v1: requests to payloads, and answers to responses, as the Seldon Core Python wrapper has them.

The first of `data`, `jsonData`, `strData` and `binData` is the payload. An answer's type decides which of them it goes
out as; numbers go out as `tensor` if the request came as one, or had no data, else as `ndarray`. Bodies have sorted
keys and end in a newline.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
import orjson
from msgspec import UNSET

from prefork.errors import BadAnswer, BadRequest, PreforkError
from prefork.http import Request, Response
from prefork.payload import Feedback, Kind, Payload
from prefork.protocols import forms, json, plain, seldon_meta
from prefork.protocols.seldon_types import (
    Data,
    Incoming,
    IncomingFeedback,
    IncomingList,
    SeldonMessage,
    SeldonMessageList,
    Status,
    Tensor,
)

__all__ = ["Context", "SeldonMessage", "SeldonMessageList", "decode", "encode", "encode_error"]

Array = np.ndarray[Any, Any]
Found = bytes | str | dict[str, Any]

_ARRAYS: json.Expected = {"data": {"ndarray": json.ARRAY, "tensor": {"values": json.ARRAY}}}
_LIST: Any = list[Incoming] | IncomingList
_value: json.Wire[Any] = json.Wire(Any, complaint=forms.MISSING)
_message: json.Wire[Incoming] = json.Wire(Incoming, _ARRAYS, complaint=forms.MISSING)
_messages: json.Wire[list[Incoming] | IncomingList] = json.Wire(
    _LIST, {"seldonMessages": [_ARRAYS], "*": _ARRAYS}, complaint=forms.MISSING
)
_feedback: json.Wire[IncomingFeedback] = json.Wire(
    IncomingFeedback, {"request": _ARRAYS, "response": _ARRAYS, "truth": _ARRAYS}, complaint=forms.MISSING
)


class Context(msgspec.Struct, frozen=True):
    """What answers say of the server.

    unit_id, unit_image: the node of a Seldon graph that this is; they make `meta.requestPath`. include_metrics: whether
    answers carry the model's own metrics. nan: how NaN and infinities are written.
    """

    unit_id: str = ""
    unit_image: str = ""
    include_metrics: bool = True
    nan: Literal["null", "literal"] = "null"


def decode(
    request: Request,
    method: str,
    *,
    raw: bool = False,
    passthrough: bool = False,
    unit_id: str = "",
    max_depth: int = json.MAX_DEPTH,
) -> Payload:
    """The request as the payload of a method: MANY for `aggregate`, FEEDBACK for `send_feedback`.

    raw: `message` is the parsed JSON as it was sent, and a message that is none of Seldon's is of kind RAW instead of an
    error. passthrough: kind RAW, value and message the body's bytes or the text of the field `json`. unit_id: whose
    routing a feedback is about. max_depth: how deep the JSON may nest. Raises BadRequest that names the field, and
    UnsupportedMediaType.
    """
    if passthrough:
        text = forms.verbatim(request)
        return Payload(Kind.RAW, text, method, message=text)
    found = forms.select(request, max_depth)
    if raw:
        return _decode_raw(found, method, unit_id, max_depth)
    if method == "aggregate":
        return _many(_read(_messages, found, max_depth), method, found)
    if method == "send_feedback":
        return _with_feedback(_read(_feedback, found, max_depth), unit_id, found)
    return _one(_read(_message, found, max_depth), method, found)


def _read(wire: json.Wire[json.T], found: Found, max_depth: int) -> json.T:
    return wire.convert(found) if isinstance(found, dict) else wire.decode(found, max_depth)


def _decode_raw(found: Found, method: str, unit_id: str, max_depth: int) -> Payload:
    message = _read(_value, found, max_depth)
    try:
        if method == "aggregate":
            payload = _many(_messages.convert(message), method, found)
        elif method == "send_feedback":
            payload = _with_feedback(_feedback.convert(message), unit_id, found)
        else:
            payload = _one(_message.convert(message), method, found)
    except BadRequest:
        payload = Payload(Kind.RAW, message, method)
    payload.message = message
    return payload


def _one(message: Incoming, method: str, found: Found) -> Payload:
    meta = None if message.meta is None else seldon_meta.checked(message.meta)
    data = message.data
    if data is not UNSET:
        return Payload(Kind.TENSOR, _array(data, found, "data"), method, data.names, meta, message=message)
    kind, value = _content(message, found)
    return Payload(kind, value, method, meta=meta, message=message)


def _content(message: Incoming, found: Found) -> tuple[Kind, Any]:
    if message.json_data is not UNSET:
        return Kind.JSON, message.json_data
    if message.str_data is not UNSET:
        return Kind.TEXT, message.str_data
    if message.bin_data is not UNSET:
        return Kind.BYTES, _unbase64(message.bin_data)
    shown = found.decode(errors="replace") if isinstance(found, bytes) else str(found)
    raise BadRequest(f"Invalid request data type: {shown[:200]}")


def _unbase64(text: str) -> bytes:
    """The bytes; what is no base64 character is passed over, as the wrapper does."""
    try:
        return base64.b64decode(text)
    except ValueError as error:
        raise BadRequest(f"binData is not base64: {error}") from None


def _array(data: Data, found: Found, field: str) -> Array:
    if data.tensor is not UNSET:
        return _tensor(data.tensor, found, f"{field}.tensor")
    if data.ndarray is not UNSET:
        return _as_array(data.ndarray, found, f"{field}.ndarray")
    if data.tftensor is not UNSET:
        raise BadRequest(f"{field}.tftensor needs TensorFlow and is not taken: send {field}.tensor or {field}.ndarray")
    return np.array([])


def _as_array(values: Any, found: Found, field: str) -> Array:
    if isinstance(values, np.ndarray):
        return values
    if values is None or isinstance(values, dict):
        raise BadRequest(f"{field} must be a list, got {'null' if values is None else 'an object'}")
    return json.as_array(values, field, size=None if isinstance(found, dict) else len(found))


def _tensor(tensor: Tensor, found: Found, field: str) -> Array:
    if tensor.shape is UNSET:
        raise BadRequest(f"{field}.shape is missing")
    if tensor.values is UNSET:
        raise BadRequest(f"{field}.values is missing")
    values = _as_array(tensor.values, found, f"{field}.values")
    try:
        return values.reshape([_size(size) for size in tensor.shape])
    except (ValueError, OverflowError):
        problem = f"does not fit {field}.values, which are {values.size}"
        raise BadRequest(f"{field}.shape {str(tensor.shape)[:100]} {problem}") from None


def _size(size: int) -> int:
    """One size of a shape; numpy would take any negative one for -1."""
    if size < -1:
        raise ValueError(size)
    return size


def _many(messages: list[Incoming] | IncomingList, method: str, found: Found) -> Payload:
    elements = messages.seldon_messages if isinstance(messages, IncomingList) else messages
    if not elements:
        raise BadRequest("seldonMessages is empty: there is nothing to aggregate")
    value = []
    for at, message in enumerate(elements):
        try:
            value.append(_one(message, method, found))
        except BadRequest as error:
            raise BadRequest(f"seldonMessages[{at}]: {error.message}") from None
    return Payload(Kind.MANY, value, method, message=messages)


def _with_feedback(feedback: IncomingFeedback, unit_id: str, found: Found) -> Payload:
    features, names, meta = _features(feedback.request, found, "request")
    truth, _, _ = _features(feedback.truth, found, "truth")
    value = Feedback(features, names or [], feedback.reward or 0.0, truth, _routing(feedback.response, unit_id))
    return Payload(Kind.FEEDBACK, value, "send_feedback", names, meta, message=feedback)


def reward(payload: Payload) -> float:
    """The reward of a feedback; 0 where a message that goes to a raw hook as it came has none that is a number."""
    if isinstance(payload.value, Feedback):
        return payload.value.reward
    said = payload.value.get("reward") if isinstance(payload.value, dict) else None
    return float(said) if isinstance(said, int | float) else 0.0


def _features(
    message: Incoming | None, found: Found, field: str
) -> tuple[Array, list[Any] | None, dict[str, Any] | None]:
    """The message's data, numbers as float64, its names and its meta; no data is an empty array."""
    if message is None:
        return np.array([]), None, None
    meta = seldon_meta.checked(message.meta, f"{field}.meta")
    data = message.data
    if data is UNSET:
        return np.array([]), None, meta
    array = _array(data, found, f"{field}.data")
    if array.dtype.kind in "iuf":
        array = array.astype(np.float64, copy=False)
    elif data.tensor is not UNSET:
        raise BadRequest(f"{field}.data.tensor.values must be numbers")
    return array, data.names, meta


def _routing(response: Incoming | None, unit_id: str) -> int | None:
    """The branch that the unit, or unit 0, had chosen."""
    meta = None if response is None else seldon_meta.checked(response.meta, "response.meta")
    branch = ((meta or {}).get("routing") or {}).get(unit_id or "0")
    if branch is not None and (not isinstance(branch, int) or isinstance(branch, bool)):
        raise BadRequest(f"response.meta.routing must have integers, got {str(branch)[:100]}")
    return branch


def encode(answer: Payload, request: Payload, context: Context) -> Response:
    """The response to a request, from what the model answered.

    A RAW answer goes out as it is; its `status.code`, if it has one, is the HTTP status of a `predict`. Raises BadAnswer
    that names what cannot be put on the wire. Text and bytes for a request that was passed through go out untouched.
    """
    if request.kind is Kind.RAW and isinstance(request.value, (bytes, forms.Verbatim)):
        if isinstance(answer.value, str):
            return Response(answer.value.encode())
        if isinstance(answer.value, (bytes, bytearray)):
            return Response(bytes(answer.value))
    if answer.kind is Kind.RAW:
        return _encode_raw(answer.value, request.method, context)
    meta = seldon_meta.of_answer(
        answer, request, context.unit_id, context.unit_image, include_metrics=context.include_metrics
    )
    field, value = _field(answer, request)
    return Response(json.encode({field: value, "meta": meta}, nan=context.nan, sort=True, newline=True))


def _encode_raw(value: Any, method: str, context: Context) -> Response:
    if not context.include_metrics:
        value = _without_metrics(value)
    body = json.encode(value, nan=context.nan, sort=True, newline=True)
    return Response(body, status=_status(value) if method == "predict" else 200)


def _without_metrics(value: Any) -> Any:
    meta = value.get("meta") if isinstance(value, dict) else None
    if not isinstance(meta, dict) or "metrics" not in meta:
        return value
    return {**value, "meta": {name: field for name, field in meta.items() if name != "metrics"}}


def _status(value: Any) -> int:
    status = value.get("status") if isinstance(value, dict) else None
    code = status.get("code") if isinstance(status, dict) else None
    return code if isinstance(code, int) and 200 <= code <= 599 else 200


def _field(answer: Payload, request: Payload) -> tuple[str, Any]:
    """The message's field that the answer goes out as, and its value."""
    kind, value = answer.kind, answer.value
    if kind is Kind.TENSOR:
        return "data", _data(value, answer.names, request)
    if kind is Kind.JSON:
        return "jsonData", value
    if kind is Kind.TEXT:
        return "strData", value
    if kind is Kind.BYTES:
        return "binData", base64.b64encode(value).decode()
    if kind is not Kind.TENSORS:
        raise BadAnswer(f"an answer of kind {kind.name} has no form in Seldon's protocol")
    tensors = {name: _texts(name, array) for name, array in value.items()}
    if len(tensors) == 1:
        return "data", _data(next(iter(tensors.values())), answer.names, request)
    return "jsonData", tensors


def _texts(name: str, array: Any) -> Any:
    """An array of bytes as one of texts; anything else as it is."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "SO":
        return array
    try:
        cells = [cell.decode() if isinstance(cell, bytes) else cell for cell in array.ravel().tolist()]
    except UnicodeDecodeError:
        raise BadAnswer(f"output {name!r} holds bytes that are not UTF-8 text, which JSON has no form for") from None
    texts = np.empty(len(cells), dtype=object)
    texts[:] = cells
    return texts.reshape(array.shape)


def _data(value: Any, names: list[Any] | None, request: Payload) -> dict[str, Any]:
    """A `data` object. The value is an array, or a list that numpy would change."""
    if isinstance(value, np.ndarray):
        value = array = plain.widen(value)
        numeric = array.dtype.kind in "iuf"
    else:
        array, numeric = _cells(value)
    feedback = request.method == "send_feedback"
    if feedback and array.dtype.kind in "iu":
        value = array = array.astype(np.float64)
    shown = [] if array.ndim < 2 else _columns(array.shape[1]) if names is None else names
    body = {} if feedback and array.ndim < 2 else {"names": shown}
    if not numeric or _encoding(request) == "ndarray":
        return {**body, "ndarray": value}
    tensor: dict[str, Any] = {"shape": array.shape}
    if array.size or not feedback:
        tensor["values"] = array.reshape(-1)
    return {**body, "tensor": tensor}


def _cells(values: list[Any]) -> tuple[Array, bool]:
    """A list's own elements, of a ragged list its lists, and whether numpy would see numbers in them.

    Integers beyond 64 bits are none, nor are booleans alone; among numbers they are numbers.
    """
    try:
        array = np.array(values, dtype=object)
    except ValueError:
        return np.empty(len(values), dtype=object), False
    cells = array.ravel().tolist()
    kinds = set(map(type, cells))
    if not cells or kinds == {bool} or not kinds <= {int, float, bool} or np.array(cells).dtype.kind == "O":
        return array, False
    array[...] = np.array([cell + 0 for cell in cells], dtype=object).reshape(array.shape)
    return array, True


@lru_cache(maxsize=32)
def _columns(size: int) -> orjson.Fragment:
    """The names of columns that have none, `["t:0","t:1",...]`, written once."""
    return orjson.Fragment(orjson.dumps([f"t:{column}" for column in range(size)]))


def _encoding(request: Payload) -> str:
    """How the request's data came, the first message's of many: `tensor`, `ndarray`, or empty if it had none."""
    message = request.value[0].message if request.kind is Kind.MANY else request.message
    if request.kind is Kind.FEEDBACK:
        message = message.get("request") if isinstance(message, dict) else message.request
    if isinstance(message, dict):
        data = message.get("data")
        return "" if data is None else "tensor" if "tensor" in data else "ndarray"
    if not isinstance(message, SeldonMessage) or message.data is UNSET:
        return ""
    return "ndarray" if message.data.tensor is UNSET else "tensor"


def encode_error(error: PreforkError) -> Response:
    """Seldon's error body with the error's HTTP status."""
    body = {"status": Status(info=error.message, reason=error.reason)}
    return Response(msgspec.json.encode(body) + b"\n", status=error.status, headers=error.headers)

"""`seldon_core.utils`: between Seldon's JSON, its messages and numpy, on the light messages of `proto.prediction_pb2`."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from prefork.compat.env_utils import variable
from prefork.compat.flask_utils import SeldonMicroserviceException
from prefork.compat.proto.prediction_pb2 import DefaultData, Feedback, Message, SeldonMessage, SeldonMessageList, Tensor

Array = np.ndarray[Any, Any]
M = TypeVar("M", bound=Message)


def getenv_as_bool(env_var: str, default: bool = False) -> bool:  # noqa: FBT001, FBT002 - Seldon's signature
    """Whether a variable says 1, true or t, in any case; `default` where it is not set."""
    return variable(env_var, str(default)).lower() in {"1", "true", "t"}


def json_to_seldon_message(message_json: dict[str, Any] | list[Any] | None) -> SeldonMessage:
    """The message of a JSON object. Raises SeldonMicroserviceException (400) for one that is none."""
    return _parsed(SeldonMessage, message_json)


def json_to_feedback(message_json: dict[str, Any]) -> Feedback:
    """The feedback of a JSON object. Raises SeldonMicroserviceException (400) for one that is none."""
    return _parsed(Feedback, message_json)


def json_to_seldon_messages(message_json: dict[str, Any]) -> SeldonMessageList:
    """The list of messages of a JSON object. Raises SeldonMicroserviceException (400) for one that is none."""
    return _parsed(SeldonMessageList, message_json)


def seldon_message_to_json(message_proto: Message) -> dict[str, Any]:
    """A message as JSON values."""
    return message_proto.to_dict()


feedback_to_json = seldon_messages_to_json = seldon_message_to_json


def get_data_from_proto(request: SeldonMessage) -> Array | str | bytes | Any:
    """What a message carries: an array, a text, bytes or a JSON value.

    Raises SeldonMicroserviceException (400) where it carries nothing.
    """
    kind = request.WhichOneof("data_oneof")
    if kind is None:
        raise SeldonMicroserviceException("Unknown data in SeldonMessage")
    return grpc_datadef_to_array(request.data) if kind == "data" else getattr(request, kind)


def get_meta_from_proto(request: SeldonMessage) -> dict[str, Any]:
    """A message's `meta` as JSON values."""
    return dict(request.meta.to_dict())


def grpc_datadef_to_array(datadef: DefaultData) -> Array:
    """The array of a message's `data`; an empty one where there is none."""
    return rest_datadef_to_array(datadef.to_dict())


def rest_datadef_to_array(datadef: dict[str, Any]) -> Array:
    """The array of a JSON `data` object; an empty one where there is none."""
    if "tensor" in datadef:
        tensor = datadef["tensor"]
        return np.array(tensor.get("values", [])).reshape(tensor.get("shape", -1))
    return np.array(datadef.get("ndarray", []))


def array_to_grpc_datadef(data_type: str, array: Array, names: Iterable[str] | None = None) -> DefaultData:
    """A message's `data` of an array, as a tensor where `data_type` says so, else as nested lists."""
    return DefaultData.from_dict(array_to_rest_datadef(data_type, array, names))


def array_to_rest_datadef(data_type: str, array: Array, names: Iterable[str] | None = None) -> dict[str, Any]:
    """A JSON `data` object of an array, as a tensor where `data_type` says so, else as nested lists."""
    array = np.asarray(array)
    datadef: dict[str, Any] = {"names": list(names or ())}
    if data_type == "tensor":
        datadef["tensor"] = Tensor(shape=list(array.shape), values=array.ravel().tolist()).to_dict()
    else:
        datadef["ndarray"] = array.tolist()
    return datadef


def extract_request_parts_json(
    request: dict[str, Any],
) -> tuple[Any, dict[str, Any] | None, dict[str, Any] | None, str]:
    """A JSON message's data, its meta, its `data` object and which of the four kinds of data it has.

    Raises SeldonMicroserviceException (400) where it has none of them.
    """
    if not isinstance(request, dict):
        raise SeldonMicroserviceException(f"Invalid request data type: {request}")
    meta = request.get("meta")
    if "data" in request:
        return rest_datadef_to_array(request["data"]), meta, request["data"], "data"
    for kind in ("jsonData", "strData", "binData"):
        if kind in request:
            value = request[kind]
            return base64.b64decode(value) if kind == "binData" else value, meta, None, kind
    raise SeldonMicroserviceException(f"Invalid request data type: {request}")


def _parsed(kind: type[M], values: Any) -> M:
    try:
        return kind.from_dict({} if values is None else values)
    except ValueError as error:
        raise SeldonMicroserviceException(f"Invalid JSON: {error}") from None

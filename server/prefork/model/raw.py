"""The hooks that want Seldon's whole message, and whose answer goes out as it is: `*_raw`, and the older `*_rest`.

`send_feedback_raw` gets a message with attributes, as protobuf's have, and may return one; the others get the parsed JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from prefork.compat import utils
from prefork.compat.proto.prediction_pb2 import Message
from prefork.model.hooks import Hook
from prefork.payload import Kind, Payload


def caller(hook: Hook, prepare: Callable[[Any], Any] = lambda message: message) -> Hook:
    """Calls the hook with a request's message, prepared; the answer is a RAW payload.

    A request without one (of any protocol but Seldon's) gives NotImplemented: the plain hook is asked instead.
    """

    def call(request: Payload) -> Any:
        message = request.value if request.kind is Kind.RAW else request.message
        if message is None and request.method != "health_status":
            return NotImplemented
        result = hook() if request.method == "health_status" else hook(prepare(message))
        return _later(result, request) if hasattr(result, "__await__") else _answer(result, request)

    return call


def feedback(message: Any) -> Any:
    """A feedback's JSON as an object with attributes: the real package's where the user's code uses that."""
    return _utils().json_to_feedback(message)


def text(message: Any) -> str:
    """A message as a JSON text."""
    return json.dumps(message)


def _utils() -> Any:
    return sys.modules.get("seldon_core.utils", utils)


async def _later(result: Any, request: Payload) -> Payload:
    return _answer(await result, request)


def _answer(result: Any, request: Payload) -> Payload:
    return Payload(Kind.RAW, _plain(result), request.method)


def _plain(result: Any) -> Any:
    if isinstance(result, Message):
        return result.to_dict()
    return _utils().seldon_message_to_json(result) if hasattr(result, "DESCRIPTOR") else result

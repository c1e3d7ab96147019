"""Errors in the shape that the clients of a path read."""

from __future__ import annotations

from collections.abc import Callable

from prefork.errors import PreforkError
from prefork.http import Response
from prefork.protocols import generate, mlflow, seldon, sse, v1, v2

_ENCODERS: dict[str, Callable[[PreforkError], Response]] = {
    "/v2": v2.encode_error,
    "/v1": v1.encode_error,
    "/invocations": mlflow.encode_error,
    "/ping": mlflow.encode_error,
    "/version": mlflow.encode_error,
}


def encode_error(path: str, error: PreforkError) -> Response:
    """The error in the shape that the clients of that path, and of its neighbours, read: by the path's first part."""
    first = "/" + path.lstrip("/").partition("/")[0]
    return _ENCODERS.get(first, seldon.encode_error)(error)


def stream_error(error: PreforkError) -> bytes:
    """A stream's last event when it breaks off."""
    return sse.event(generate.encode_stream_error(error))

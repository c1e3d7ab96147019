"""V2's `timeout` parameter: microseconds that the client waits at most. 0 is no limit. Source: Triton's request parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from prefork.errors import BadRequest
from prefork.http import Request
from prefork.payload import ModelSpec
from prefork.protocols.v2 import LENGTH

_SMALL = 65_536
"""Bytes of JSON, and sixteen times as many of body, that are worth reading twice while the request waits anyway."""


class _Head(msgspec.Struct):
    parameters: dict[str, Any] | None = None
    timeout: Any = None


def seconds(parameters: Mapping[str, Any] | None, spec: ModelSpec) -> float | None:
    """What the parameters say, in seconds; None for nothing. Raises BadRequest for what is no whole number from 0 on.

    A model that has an input called `timeout` has the word for itself.
    """
    said = parameters.get("timeout") if parameters else None
    if said is None or any(tensor.name == "timeout" for tensor in spec.inputs or ()):
        return None
    if isinstance(said, str) and said.isascii() and said.isdigit():
        said = int(said[:18])
    if isinstance(said, bool) or not isinstance(said, int) or said < 0:
        raise BadRequest(f"parameter 'timeout' must be a whole number of microseconds, got: {str(said)[:40]}")
    return said / 1e6 if said else None


def glimpse(request: Request, spec: ModelSpec) -> float | None:
    """As `seconds`, of a request that is not decoded yet; None too where it is not easily seen, or wrong."""
    if b"content-encoding" in request.headers or sum(map(len, request.chunks)) > 16 * _SMALL:
        return None
    if b'"timeout"' not in request.body:
        return None
    head = request.body[: _json_size(request)]
    if len(head) > _SMALL:
        return None
    try:
        found = msgspec.json.decode(head, type=_Head)
        return seconds(found.parameters or {"timeout": found.timeout}, spec)
    except (BadRequest, msgspec.MsgspecError, UnicodeDecodeError):
        return None  # whoever decodes the request says what is wrong with it


def _json_size(request: Request) -> int | None:
    length = request.header(LENGTH)
    return int(length) if length.isascii() and length.isdigit() and len(length) < 18 else None

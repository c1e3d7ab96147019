"""The answers that gunicorn itself gives, as JSON: a request it cannot parse, one over its limits, a worker that was stopped.

    {"error": TEXT, "status": {"code": -1, "info": TEXT, "reason": REASON, "status": 1}}

`error` is what clients of V2 and V1 read, `status` what Seldon's read.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from gunicorn import util

from prefork.errors import BadRequest, PreforkError

_REASONS = {400: BadRequest.reason, 500: PreforkError.reason}
_PHRASES = {414: "URI Too Long"}  # Python before 3.13 has another name for it


def body(status: int, text: str) -> bytes:
    """The JSON body for a status; an empty text says the status's own phrase."""
    info = text or phrase(status)
    reason = _REASONS.get(status) or phrase(status).upper().replace(" ", "_")
    return msgspec.json.encode({"error": info, "status": {"code": -1, "info": info, "reason": reason, "status": 1}})


def phrase(status: int) -> str:
    """The reason phrase of a status."""
    known = status in HTTPStatus._value2member_map_
    return _PHRASES.get(status) or (HTTPStatus(status).phrase if known else "Error")


def response(status: int, text: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """The whole response, after which the connection is closed."""
    content = body(status, text)
    lines = [
        f"HTTP/1.1 {status} {phrase(status)}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        *(f"{name}: {value}" for name, value in headers),
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


def write_error(sock: Any, status_int: int, reason: str, mesg: str) -> None:
    """In the place of `gunicorn.util.write_error`."""
    util.write_nonblock(sock, response(status_int, mesg or reason))

"""Content codings: gzip and deflate bodies in, bounded as they grow; gzip or deflate answers out when asked for.

deflate is RFC 9110's: a zlib wrapper. A raw deflate stream is refused rather than guessed at.
"""

from __future__ import annotations

import zlib

from prefork.errors import BadRequest, PayloadTooLarge, UnsupportedMediaType
from prefork.http import Request, Response

_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""zlib's window bits: +16 makes it read and write gzip's header and trailer."""

_LEVEL = 1  # JSON numbers shrink to half at level 1; level 6 takes three times as long for a tenth more


def decompress(request: Request, limit: int) -> None:
    """Replace the request's body by what it decompresses to, at most `limit` bytes.

    Raises UnsupportedMediaType for another coding, BadRequest for a broken body, PayloadTooLarge beyond the limit.
    """
    coding = request.header(b"content-encoding").strip().lower()
    if coding in ("", "identity"):
        return
    window = _WINDOWS.get(coding)
    if window is None:
        error = UnsupportedMediaType(
            f"Content-Encoding {coding[:40]!r} is not supported; send gzip, deflate or identity"
        )
        error.headers = (("Accept-Encoding", "gzip, deflate"),)
        raise error
    request.body = _inflate(request.body, window, coding, limit)


def _inflate(body: bytes, window: int, coding: str, limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    while True:
        machine = zlib.decompressobj(window)
        try:
            part = machine.decompress(body, room + 1)
        except zlib.error as error:
            raise BadRequest(f"the body is not {coding}: {error}") from error
        parts.append(part)
        room -= len(part)
        if room < 0:
            raise PayloadTooLarge(f"the decompressed body is over {limit} bytes (max_body_size)")
        if not machine.eof:
            raise BadRequest(f"the {coding} body is cut short")
        body = machine.unused_data
        if not body:  # a gzip body may have several members
            return b"".join(parts)


def compress(request: Request, response: Response, minimum: int) -> None:
    """Compress the response's body when the client asks for it and it has at least `minimum` bytes."""
    if sum(map(len, response.body)) < minimum:
        return
    response.headers.append(("Vary", "Accept-Encoding"))
    coding = preferred(request.header(b"accept-encoding"))
    if coding is None:
        return
    machine = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOWS[coding])
    parts = [machine.compress(part) for part in response.body]
    response.body = [b"".join([*parts, machine.flush()])]
    response.headers.append(("Content-Encoding", coding))


def preferred(accept: str) -> str | None:
    """`gzip` or `deflate`, whichever the Accept-Encoding header values most; None for identity. The first wins ties."""
    best: str | None = None
    best_quality = 0.0
    for item in accept.split(","):
        name, _, rest = item.partition(";")
        quality = _quality(rest)
        coding = name.strip().lower()
        if coding in ("gzip", "deflate", "identity") and quality > best_quality:
            best, best_quality = coding, quality
    return None if best == "identity" else best


def _quality(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    if name.strip().lower() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0

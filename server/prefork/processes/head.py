"""The head of a response as bytes. What is the same for many responses is written once."""

from __future__ import annotations

from functools import lru_cache

from gunicorn.asgi import protocol

from prefork.http import Response

CHUNKED = b"transfer-encoding: chunked\r\n"
_CLOSE = b"connection: close\r\n"
_OWN = (b"date", b"server", b"connection")
"""Headers that are not added where the response has them."""


def head(version: tuple[int, int], response: Response, framing: bytes, *, close: bool) -> bytes:
    """Status line and headers. framing: the header that says where the body ends, empty where none does.

    Raises gunicorn's errors for a header that would break HTTP's framing.
    """
    begin, names = _begin(version, response.status, response.content_type, tuple(response.headers))
    date = b"" if b"date" in names else protocol._get_cached_date_header()  # noqa: SLF001 - once a second
    return b"%b%b%b%b\r\n" % (begin, date, framing, _CLOSE if close and b"connection" not in names else b"")


@lru_cache(256)
def _begin(
    version: tuple[int, int], status: int, content_type: str, headers: tuple[tuple[str, str], ...]
) -> tuple[bytes, set[bytes]]:
    """The first lines, and which of _OWN are among them."""
    pairs = [("content-type", content_type), *headers]
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    protocol._validate_response_headers(lines)  # noqa: SLF001 - what gunicorn's own responses go through
    own = {name for name, _ in lines if name in _OWN}
    text = b"".join(b"%b: %b\r\n" % line for line in lines)
    server = b"" if b"server" in own else protocol._CACHED_SERVER_HEADER  # noqa: SLF001
    return protocol._get_cached_status_line(version, status) + text + server, own  # noqa: SLF001

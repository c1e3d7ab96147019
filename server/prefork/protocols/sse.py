"""Server-sent events: `data` fields to bytes and back.

An event is its lines, each behind `data: `, and an empty line. Source: the HTML standard, "Server-sent events".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

CONTENT_TYPE = "text/event-stream; charset=utf-8"


def event(data: bytes) -> bytes:
    """One event that carries `data`. Its line ends (LF, CR LF, CR) all reach the client as LF."""
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"".join([b"data: %b\n" % line for line in lines]) + b"\n"


def events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each event, however the bytes are cut into chunks.

    Comments and other fields are passed over, as is an event that the end of the stream cuts off.
    """
    data: list[bytes] = []
    for line in _lines(chunks):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The complete lines of a stream without their ends; a byte order mark before the first is dropped."""
    rest, after_return, first = b"", False, True
    for chunk in filter(None, chunks):
        # A CR ends its line at once, so that the event is not held back; a LF behind it belongs to it.
        fresh = chunk[1:] if after_return and chunk.startswith(b"\n") else chunk
        after_return = chunk.endswith(b"\r")
        *lines, rest = _split(rest + fresh)
        for line in lines:
            yield line.removeprefix(b"\xef\xbb\xbf") if first else line
            first = False


def _split(text: bytes) -> list[bytes]:
    """The lines of a text, the last one without its end (perhaps empty)."""
    return [*text.splitlines(), b""] if text.endswith((b"\n", b"\r")) else text.splitlines() or [b""]

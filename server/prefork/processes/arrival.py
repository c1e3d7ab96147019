"""How much of a request has to arrive before serving it waits for nobody. A pure look at its first bytes."""

from __future__ import annotations

import re

LOOK = 16_384
"""Bytes that are looked at. A head, or a body, that is longer is served as it comes."""

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"


def needed(seen: bytes) -> int:
    """0 if the first bytes have a request to the end of its body, or LOOK of it; else how many bytes to look at next time.

    What is no HTTP is whole, for the parser to say so, and a head that asks for a `100 Continue` before its body comes.
    """
    if len(seen) >= LOOK:
        return 0
    end = seen.find(b"\r\n\r\n")
    if end < 0:
        return 0 if b"\n\n" in seen or b"\n\r\n" in seen else len(seen) + 1
    head, body = seen[: end + 2], end + 4
    if b"\r\nexpect:" in head.lower():
        return 0
    length = _LENGTH.search(head)
    if length is not None:
        total = min(body + int(length[1]), LOOK)
        return total if len(seen) < total else 0
    if _CHUNKED.search(head):
        # From the end of the head on, for an empty body that ends there.
        return 0 if _LAST_CHUNK in seen[end + 2 :] else len(seen) + 1
    return 0

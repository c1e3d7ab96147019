"""Checksums of files, in hexadecimal: of the content that was fetched, and those that sources give."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

_AT_ONCE = 1 << 20


def sha256_of(path: Path) -> str:
    """SHA-256 of a file."""
    return digests_of(path, ["sha256"])["sha256"]


def digests_of(path: Path, kinds: Iterable[str], seen: Callable[[int], None] = lambda _count: None) -> dict[str, str]:
    """Several checksums of a file in one reading. kinds: `sha256`, `md5`, `git` (the id of git's blob).

    seen: is called with each number of bytes that was read.
    """
    hashes = {kind: _started(kind, path.stat().st_size) for kind in kinds}
    with path.open("rb") as file:
        while block := file.read(_AT_ONCE):
            for each in hashes.values():
                each.update(block)
            seen(len(block))
    return {kind: str(each.hexdigest()) for kind, each in hashes.items()}


def told(info: Mapping[str, Any]) -> dict[str, str]:
    """The checksums in what fsspec says about a file of S3, GCS, Hugging Face or an HTTP server.

    An S3 ETag is the MD5 of an object that came in one part and is not encrypted with a key of KMS or of the customer.
    """
    found = {}
    # S3's ETags only: one of an HTTP server may be anything.
    if "StorageClass" in info and (match := re.fullmatch(r'"?([0-9a-f]{32})"?', str(info.get("ETag", "")))):
        found["md5"] = match[1]
    for name in ("md5Hash", "Content-MD5"):
        found |= {"md5": digest} if (digest := _from_base64(info.get(name), 16)) else {}
    if match := re.search(r"(?i)(?:^|,)\s*sha-256=([A-Za-z0-9+/=]+)", str(info.get("Digest", ""))):
        found |= {"sha256": digest} if (digest := _from_base64(match[1], 32)) else {}
    lfs = info.get("lfs")
    if lfs and lfs.get("sha256"):
        found["sha256"] = str(lfs["sha256"])
    elif info.get("blob_id"):
        found["git"] = str(info["blob_id"])
    return found


def _started(kind: str, size: int) -> Any:
    if kind == "git":
        # SHA-1 over the header `blob SIZE\0` and the content.
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return hashlib.new(kind, usedforsecurity=kind == "sha256")


def _from_base64(text: Any, length: int) -> str:
    try:
        raw = base64.b64decode(str(text or ""), validate=True)
    except binascii.Error:
        return ""
    return raw.hex() if len(raw) == length else ""

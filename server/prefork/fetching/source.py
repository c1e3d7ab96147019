"""What an address holds and how its bytes are read, over fsspec; only the process that fetches imports this.

Stores of objects are read by ranges, several at once. An HTTP server is read as one stream, since one that knows no ranges
would answer each with the whole file; where it starts is told by its answer.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from prefork.errors import ModelLoadError
from prefork.fetching.digests import told
from prefork.fetching.location import Location, is_part

PIECE = 8 << 20
_AT_ONCE = 4
_STREAMED = 1 << 20
_CONNECT, _SILENCE = 10, 60
"""Seconds to connect, and seconds in which nothing comes, that an HTTP server has."""

_LATER = frozenset({408, 425, 429})
_PROTOCOLS = {"https": "http"}


class Listed(msgspec.Struct, frozen=True):
    """One file of a source. name: relative to the address; path: fsspec's; size: None where it is not told.

    version: changes when the file does, empty where nothing tells; digests: its checksums, by kind, that the source gives.
    """

    name: str
    path: str
    size: int | None
    version: str
    digests: dict[str, str]
    condition: str = ""


class Listing(msgspec.Struct, frozen=True):
    """What the address holds now."""

    is_folder: bool
    files: tuple[Listed, ...]

    @property
    def size(self) -> int | None:
        """Bytes in all; None where that is not known."""
        sizes = [each.size for each in self.files]
        return sum(each for each in sizes if each is not None) if None not in sizes else None

    def is_like(self, other: Listing) -> bool:
        """Whether nothing has changed, as far as can be told."""
        return [(each.name, each.size, each.version) for each in self.files] == [
            (each.name, each.size, each.version) for each in other.files
        ]


class Broken(Exception):
    """What came is not what was asked for; another try may do better."""


class Source:
    """An address that is asked. Raises ModelLoadError where its extra is missing."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._is_http = location.scheme.startswith("http")
        # Its files are read through a cache otherwise, which reads ahead what the next piece asks for once more.
        self._plainly = {"cache_type": "none"} if location.scheme == "hf" else {}
        try:
            self._fs = _file_system(location.scheme)
        except ImportError as error:
            raise location.missing() from error
        self._path = str(self._fs._strip_protocol(location.address))  # noqa: SLF001 - fsspec's own way for path and scheme

    def listing(self) -> Listing:
        """The files that there are now. Raises ModelLoadError for names that lead out of the folder, else what fsspec raises."""
        self._fs.invalidate_cache()
        info = self._fs.info(self._path)
        if info["type"] == "file":
            return Listing(is_folder=False, files=(_listed(self._location.name, info),))
        base = str(info["name"]).strip("/")
        found = self._fs.find(self._path, detail=True).values()
        # Consoles make empty objects with a slash at the end so that a folder is seen.
        files = [each for each in found if each["type"] == "file" and not str(each["name"]).endswith("/")]
        listed = [_listed(self._relative(str(each["name"]), base), each) for each in files]
        if not listed:
            raise FileNotFoundError(self._location.shown)
        names = {each.name for each in listed}
        for name in names:
            self._check(name, names)
        return Listing(is_folder=True, files=tuple(sorted(listed, key=lambda each: each.name)))

    def open(self, file: Listed, start: int) -> tuple[int, Iterator[bytes]]:
        """The bytes from `start` on, and where they do start: at 0 where the source cannot start elsewhere."""
        if self._is_http:
            return self._stream(file, start)
        return start, self._ranges(file, start)

    def is_checksum(self, file: Listed) -> bool:
        """Whether the MD5 that was told is one: the ETag of an encrypted S3 object is something else."""
        if self._location.scheme != "s3":
            return True
        bucket, key, _ = self._fs.split_path(file.path)
        head = self._fs.call_s3("head_object", Bucket=bucket, Key=key)
        encrypted = str(head.get("ServerSideEncryption", "")).startswith("aws:kms")
        return not encrypted and "SSECustomerAlgorithm" not in head

    def _relative(self, name: str, base: str) -> str:
        if not name.startswith(f"{base}/"):
            raise ModelLoadError(f"{self._location.shown}: {name!r} is listed there, which is not below it")
        return name[len(base) + 1 :]

    def _check(self, name: str, names: set[str]) -> None:
        parts = name.split("/")
        if not all(map(is_part, parts)):
            raise ModelLoadError(
                f"{self._location.shown}: {name!r} is listed there, which is no path of a file below it"
            )
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in names:
                raise ModelLoadError(f"{self._location.shown}: {'/'.join(parts[:end])!r} is a file and a folder there")

    def _ranges(self, file: Listed, start: int) -> Iterator[bytes]:
        size = file.size or 0
        while start < size:
            starts = list(range(start, size, PIECE))[:_AT_ONCE]
            ends = [min(each + PIECE, size) for each in starts]
            pieces = self._fs.cat_ranges([file.path] * len(starts), starts, ends, on_error="return", **self._plainly)
            for first, last, piece in zip(starts, ends, pieces, strict=True):
                if isinstance(piece, BaseException):
                    raise piece
                if len(piece) != last - first:
                    raise Broken(f"{len(piece)} bytes came where {last - first} were asked for")
                yield piece
            start = ends[-1]

    def _stream(self, file: Listed, start: int) -> tuple[int, Iterator[bytes]]:
        headers = {"Accept-Encoding": "identity"}
        if start and file.condition:
            headers |= {"Range": f"bytes={start}-", "If-Range": file.condition}
        # A size keeps fsspec from asking for it once more.
        stream = self._fs.open(file.path, "rb", block_size=0, size=file.size or 1, headers=headers)
        resumed = stream.r.status == 206
        if resumed and not stream.r.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            stream.close()
            raise Broken(f"the server answered another range than that from {start} on")
        return (start if resumed else 0), _blocks(stream)


def is_final(error: BaseException) -> bool:
    """Whether asking again is of no use: there is no such thing, or it is not for us."""
    cause = _cause(error)
    status = _status(cause)
    if status:
        return 400 <= status < 500 and status not in _LATER
    return isinstance(cause, FileNotFoundError | PermissionError | IsADirectoryError | ValueError | ModelLoadError)


def reason(error: BaseException) -> str:
    """What an error says, for a person, on one line and without the query of an address."""
    cause = _cause(error)
    if isinstance(getattr(cause, "status", None), int):
        return f"HTTP {_status(cause)} {getattr(cause, 'message', '')}".rstrip()
    if isinstance(cause, FileNotFoundError):
        return "there is nothing"
    text = re.sub(r"(https?://[^\s?'\"]*)\?[^\s'\"]*", r"\1", " ".join(str(cause).split()))
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


def _cause(error: BaseException) -> BaseException:
    """fsspec makes every failure of HTTP a FileNotFoundError."""
    return error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ is not None else error


def _status(error: BaseException) -> int:
    """The HTTP status in an error of aiohttp's, gcsfs's, botocore's or huggingface_hub's; 0 where there is none."""
    answer = getattr(error, "response", None)
    told = answer.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(answer, dict) else None
    found = [getattr(error, "status", None), getattr(error, "code", None), told, getattr(answer, "status_code", None)]
    return next((each for each in found if isinstance(each, int)), 0)


def _blocks(stream: Any) -> Iterator[bytes]:
    with stream:
        while block := stream.read(_STREAMED):
            yield block


def _file_system(scheme: str) -> Any:
    import fsspec

    return fsspec.filesystem(_PROTOCOLS.get(scheme, scheme), use_listings_cache=False, **_options(scheme))


def _options(scheme: str) -> dict[str, Any]:
    if scheme in {"http", "https"}:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_SILENCE)
        return {"client_kwargs": {"timeout": timeout, "trust_env": True}}
    if scheme == "s3":
        return {"config_kwargs": {"retries": {"mode": "standard", "max_attempts": 2}}}
    return {}


def _listed(name: str, info: Mapping[str, Any]) -> Listed:
    etag = str(info.get("ETag") or info.get("etag") or "")
    changed = info.get("Last-Modified") or info.get("LastModified") or info.get("mtime") or ""
    if isinstance(changed, dt.datetime):
        changed = changed.isoformat()
    # The etag of a file of Google's changes with its metadata; its generation does not.
    state = info.get("generation") or info.get("xet_hash") or info.get("blob_id") or etag or changed
    size = info.get("size")
    # A weak etag tells of a change, but does not promise the same bytes: RFC 9110, If-Range.
    condition = etag if etag and not etag.startswith("W/") else str(info.get("Last-Modified", "")) if not etag else ""
    return Listed(
        name=name,
        path=str(info["name"]),
        size=None if size is None else int(size),
        version=f"{state} {size}" if state else "",
        digests=told(info),
        condition=condition,
    )

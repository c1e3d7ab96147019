"""What an address means: a path of this machine, or a scheme that an extra of Prefork's can fetch from.

    models/iris.onnx   file:///srv/iris   s3://bucket/iris   gs://bucket/iris   https://host/iris.onnx   hf://org/iris@v2

`#sha256=` and 64 hexadecimal digits at the end pin the content of a single file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from prefork.errors import ModelLoadError

EXTRAS = {"http": "http", "https": "http", "s3": "s3", "gs": "gcs", "hf": "hf"}
"""The scheme of an address, and the extra that fetches it."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=//)")
_PIN = re.compile(r"#sha256=(.*)", re.DOTALL)
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """One address, understood.

    address: as it is asked for, without the checksum; shown: what may be logged, without a password or a signed query;
    scheme: `file` for what is on this machine; name: its last part, a file's or a folder's; sha256: what was pinned, or empty.
    """

    address: str
    shown: str
    scheme: str
    name: str
    sha256: str = ""

    @property
    def key(self) -> str:
        """The address as a file's name."""
        return hashlib.sha256(self.address.encode()).hexdigest()[:32]

    @property
    def is_remote(self) -> bool:
        """Whether it is to be fetched."""
        return self.scheme != "file"

    def missing(self) -> ModelLoadError:
        """The error for an extra that is not installed."""
        extra = EXTRAS[self.scheme]
        return ModelLoadError(f"{self.shown}: {self.scheme}:// needs the extra {extra}: pip install 'prefork[{extra}]'")


def is_remote(address: str) -> bool:
    """Whether an address is one to fetch, as against a path, a `file://` or the name of a class."""
    match = _SCHEME.match(address)
    return match is not None and match[1].lower() != "file"


def read(address: str) -> Location:
    """Understand an address, or raise ModelLoadError that says what it should have been."""
    plain, pinned = _unpin(address)
    match = _SCHEME.match(plain)
    if match is None:
        return Location(address=plain, shown=plain, scheme="file", name=Path(plain).name, sha256=pinned)
    scheme = match[1].lower()
    plain = scheme + plain[match.end(1) :]
    if scheme == "file":
        path = _file_path(plain)
        return Location(address=path, shown=plain, scheme=scheme, name=Path(path).name, sha256=pinned)
    if scheme not in EXTRAS:
        raise ModelLoadError(f"{_shown(plain)}: {scheme}:// is not known; known are a path, file://, {_known()}")
    if not scheme.startswith("http"):
        plain = plain.rstrip("/")
    shown = _shown(plain)
    return Location(address=plain, shown=shown, scheme=scheme, name=_name(plain, shown, scheme), sha256=pinned)


def is_part(part: str) -> bool:
    """Whether that can be the name of a file or folder inside another, and nothing outside it."""
    return part not in {"", ".", ".."} and not re.search(r"[/\\\0]", part)


def _known() -> str:
    return ", ".join(f"{scheme}://" for scheme in EXTRAS)


def _unpin(address: str) -> tuple[str, str]:
    match = _PIN.search(address)
    if match is None:
        return address, ""
    digest = match[1].lower()
    if not _DIGEST.fullmatch(digest):
        raise ModelLoadError(f"{_shown(address)}: #sha256= needs 64 hexadecimal digits")
    return address[: match.start()], digest


def _file_path(address: str) -> str:
    parts = urlsplit(address)
    if parts.netloc not in {"", "localhost"}:
        raise ModelLoadError(f"{address}: a file of this machine has three slashes, as in file:///srv/model.onnx")
    path = unquote(address[len("file://") + len(parts.netloc) :])
    if not path or "\0" in path:
        raise ModelLoadError(f"{address}: there is no path in it")
    return path


def _shown(address: str) -> str:
    """Signatures stand in queries, passwords before the host."""
    return re.sub(r"(?<=://)[^/@]*@", "", re.split(r"[?#]", address, maxsplit=1)[0])


def _name(address: str, shown: str, scheme: str) -> str:
    authority, _, rest = re.split(r"[?]", address, maxsplit=1)[0].partition("://")[2].partition("/")
    parts = [authority, *rest.strip("/").split("/")] if rest.strip("/") else [authority]
    if scheme == "hf":
        # The revision stands behind the repository's own name.
        parts = [part.partition("@")[0] for part in parts]
    if scheme.startswith("http") and (len(parts) == 1 or rest.endswith("/")):
        raise ModelLoadError(f"{shown}: {scheme}:// fetches one file, and this address names none")
    name = unquote(parts[-1]) if scheme.startswith("http") else parts[-1]
    if not authority or not is_part(name):
        raise ModelLoadError(f"{shown}: the address does not end with the name of a file or a folder")
    return name

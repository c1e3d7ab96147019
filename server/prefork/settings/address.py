"""The address to listen on, in gunicorn's notation: `host:port`, `[v6]:port`, `unix:path`, `fd://n`, several with commas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HOST_PORT = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.%\w]+\]|[A-Za-z0-9.\-_]*[A-Za-z.\-_][A-Za-z0-9.\-_]*|)(?::(?P<port>\d{1,5}))?"
)
_MARKS = (".dockerenv", "run/.containerenv")


def read(raw: Any) -> str:
    """A reader of addresses; the port may be left out."""
    if not isinstance(raw, str) or not raw or not all(map(_is_address, raw.split(","))):
        raise ValueError("host:port, [v6]:port or unix:path is needed, with a port from 0 to 65535")
    return raw


def complete(addresses: str, port: int) -> str:
    """The addresses with a port where they have none, and 0.0.0.0 where they have no host."""
    return ",".join(_complete(each, port) for each in addresses.split(","))


def join(host: str, port: int) -> str:
    """One address out of a host and a port."""
    bare = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if bare else f"{host}:{port}"


def default_host(environ: Mapping[str, str], root: Path) -> str:
    """Every interface inside a container, whose network is its own; this machine only outside one."""
    inside = (
        environ.get("KUBERNETES_SERVICE_HOST")
        or environ.get("container")
        or any((root / mark).exists() for mark in _MARKS)
    )
    return "0.0.0.0" if inside else "127.0.0.1"  # noqa: S104 - a container's port is published by whoever runs it


def _is_special(each: str) -> bool:
    return each.startswith(("unix:", "fd://"))


def _is_address(each: str) -> bool:
    match = _HOST_PORT.fullmatch(each)
    return _is_special(each) or bool(match and each and int(match["port"] or 0) <= 65535)


def _complete(each: str, port: int) -> str:
    match = _HOST_PORT.fullmatch(each)
    if _is_special(each) or match is None:
        return each
    return f"{match['host'] or '0.0.0.0'}:{match['port'] or port}"  # noqa: S104 - what gunicorn makes of it

"""The settings that follow from others and from where the process runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefork.settings import address, cpus, secret
from prefork.settings.parameters import assignment, read
from prefork.settings.setting import About, Given
from prefork.settings.sources import Layer, rank

_ASSIGNMENT = About("`name=value`", read=assignment)


def parameters(winner: Mapping[str, Any], layers: Sequence[Layer], assignments: Sequence[str]) -> dict[str, Any]:
    """prefork.yaml's, the last layer's, under those of the source that won, under `name=value` from the command line."""
    lowest = layers[-1].get("parameters")
    merged = {**(read(lowest.raw) if lowest else {}), **winner}
    return merged | dict(Given("-p ", each).read(_ASSIGNMENT) for each in assignments)


def settle(values: dict[str, Any], layers: Sequence[Layer], environ: Mapping[str, str], root: Path) -> dict[str, Any]:
    """The values with `workers: auto`, single_threaded, the operator's secret, the cache and the address resolved."""
    if values.get("workers") == "auto":
        values["workers"] = cpus.default_workers(cpus.available(root))
    if values.get("single_threaded"):
        values["threads"] = min(values.get("threads", 1), 1)
    values["model_cache"] = values.get("model_cache") or _cache(environ)
    return values | _secret(values, layers) | _address(values, layers, environ, root)


def _cache(environ: Mapping[str, str]) -> str:
    """XDG's place for caches; a relative one counts as none, as its specification says."""
    named = environ.get("XDG_CACHE_HOME", "")
    folder = Path(named) if Path(named).is_absolute() else Path(environ.get("HOME") or "/", ".cache")
    return str(folder / "prefork" / "models")


def _secret(values: Mapping[str, Any], layers: Sequence[Layer]) -> dict[str, Any]:
    name = values.get("admin_token_file")
    if not name or rank("admin_token", layers) < rank("admin_token_file", layers):
        return {}
    return {"admin_token": secret.from_file(name)}


def _address(
    values: Mapping[str, Any], layers: Sequence[Layer], environ: Mapping[str, str], root: Path
) -> dict[str, Any]:
    host = values.get("address") or address.default_host(environ, root)
    port = values.get("port", 9000)
    parts = min(rank("address", layers), rank("port", layers))
    bind = values.get("bind") if rank("bind", layers) <= parts else None
    return {"address": host, "port": port, "bind": address.complete(bind or address.join(host, port), port)}

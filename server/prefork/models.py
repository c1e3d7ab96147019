"""`prefork models`: loading and unloading the models of a running server's repository, over its HTTP API."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click
import msgspec

from prefork.workers import Server, table

_HEAD = ("MODEL", "VERSION", "STATE", "REASON")


@click.group()
def models() -> None:
    """Load and unload the models of a server that runs with a repository."""


def _url(command: Callable[..., None]) -> Callable[..., None]:
    text = "Where the server listens."
    return click.option("--url", default="http://127.0.0.1:9000", show_default=True, help=text)(command)


def _token(command: Callable[..., None]) -> Callable[..., None]:
    text = "The server's admin_token.  [PREFORK_ADMIN_TOKEN]"
    return click.option("--token", envvar="PREFORK_ADMIN_TOKEN", default="", help=text)(command)


@models.command("list")
@_url
@click.option("--ready", is_flag=True, help="Only those that can be asked.")
def list_models(url: str, *, ready: bool) -> None:
    """Show every model of the repository with the state of its versions."""
    rows = _done(Server(url), "/v2/repository/index", {"ready": ready})
    cells = [[row.get(name, "") for name in ("name", "version", "state", "reason")] for row in rows]
    click.echo(table([_HEAD, *cells]), nl=False)


@models.command("load")
@click.argument("name")
@_url
@_token
def load_model(name: str, url: str, token: str) -> None:
    """Load NAME, or what has changed of it, and wait until it is ready."""
    _load(Server(url, token), name)


@models.command("unload")
@click.argument("name")
@_url
@_token
def unload_model(name: str, url: str, token: str) -> None:
    """Unload NAME, and wait until its processes are gone."""
    _unload(Server(url, token), name)


@models.command("reload")
@click.argument("name")
@_url
@_token
def reload_model(name: str, url: str, token: str) -> None:
    """Unload NAME and load it again, also where nothing has changed; nobody is answered meanwhile."""
    server = Server(url, token)
    _unload(server, name)
    _load(server, name)


def _load(server: Server, name: str) -> None:
    begun = time.monotonic()
    _done(server, f"/v2/repository/models/{quote(name, safe='')}/load", {})
    click.echo(f"{name} is loaded, in {time.monotonic() - begun:.1f} s")


def _unload(server: Server, name: str) -> None:
    freed = _done(server, f"/v2/repository/models/{quote(name, safe='')}/unload", {})
    before, after = freed.get("memory_before", 0), freed.get("memory_after", 0)
    click.echo(f"{name} is unloaded; memory of its processes before {_size(before)}, now {_size(after)}")


def _size(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"


def _done(server: Server, path: str, message: dict[str, Any]) -> Any:
    status, answer = server.ask("POST", path, msgspec.json.encode(message), None)
    if status != 200:
        why = answer.get("error", answer) if isinstance(answer, dict) else answer
        raise click.ClickException(f"{server.url} refuses, {status}: {why}")
    return answer

"""`prefork workers`: what an operator asks a running server, and how its answers read.

It speaks HTTP to the server and knows nothing of its processes. What goes wrong is one line and status 1.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from prefork.settings.secret import secret

_GLANCE = 0.2
"""Seconds between two looks at who is still there."""

_PATIENCE = 30.0
"""Seconds that the server has for one answer."""

_HEAD = ("MODEL", "VERSION", "PID", "STATE", "SINCE", "REPLACED FOR")


class Server:
    """A running server, by its URL. token: the operator's."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url if "://" in url else f"http://{url}"
        self._headers = {"Authorization": b"Bearer " + _bytes(token)} if token else {}

    def ask(
        self, method: str, path: str, body: bytes | None = None, patience: float | None = _PATIENCE
    ) -> tuple[int, Any]:
        """The status and the decoded JSON. Raises ClickException where there is none. patience: seconds; None has no end."""
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        try:
            connection = kind(parts.netloc, timeout=patience)
            connection.request(method, parts.path.rstrip("/") + path, body, self._headers)
            answer = connection.getresponse()
            text = answer.read()
            connection.close()
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise click.ClickException(f"{self.url} does not answer: {error}") from None
        try:
            return answer.status, msgspec.json.decode(text)
        except msgspec.MsgspecError:
            raise click.ClickException(f"{self.url}{path} answers {answer.status}, and not as Prefork does") from None

    def readiness(self) -> dict[str, Any]:
        """What `/ready` says, whether it is or not."""
        status, body = self.ask("GET", "/ready")
        if not isinstance(body, dict) or "models" not in body:
            raise click.ClickException(f"{self.url}/ready answers {status}, and not as Prefork does")
        return body


def _bytes(token: str) -> bytes:
    """As the server reads its own; http.client alone would take nothing but latin-1."""
    try:
        return secret(token).encode()
    except ValueError as error:
        raise click.ClickException(f"the token: {error}") from None


def _pids(readiness: Mapping[str, Any]) -> set[int]:
    return {worker["pid"] for model in readiness["models"] for worker in model["workers"]}


def _rows(readiness: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for model in readiness["models"]:
        for worker in model["workers"]:
            said = (worker["pid"], worker["state"], worker["since"], worker.get("replaced_for", ""))
            yield (model["name"], model["version"], *map(str, said))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they have to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _replaced(server: Server, old: set[int], before: str, limit: float) -> set[int]:
    """Wait until none of the old workers is there; who is there then."""
    deadline = time.monotonic() + limit
    while True:
        readiness = server.readiness()
        pids = _pids(readiness)
        if not pids & old:
            return pids
        if readiness.get("trouble", "") not in ("", before):
            raise click.ClickException(f"the old workers go on: {readiness['trouble']}")
        if limit and time.monotonic() >= deadline:
            raise click.ClickException(f"after {limit:g} s these are still there: {_listed(pids & old)}")
        time.sleep(_GLANCE)


def _listed(pids: Sequence[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(pids)))


@click.group()
def workers() -> None:
    """Look after the workers of a server that runs."""


def _url(command: Callable[..., None]) -> Callable[..., None]:
    text = "Where the server listens."
    return click.option("--url", default="http://127.0.0.1:9000", show_default=True, help=text)(command)


@workers.command("list")
@_url
def list_workers(url: str) -> None:
    """Show each worker, its state, and why it is being replaced."""
    readiness = Server(url).readiness()
    click.echo(table([_HEAD, *_rows(readiness)]), nl=False)
    for word in ("reason", "trouble"):
        if readiness.get(word):
            click.echo(f"{'not ready' if word == 'reason' else 'the last replacement'}: {readiness[word]}")


@workers.command("recycle")
@_url
@click.option(
    "--token", envvar="PREFORK_ADMIN_TOKEN", default="", help="The server's admin_token.  [PREFORK_ADMIN_TOKEN]"
)
@click.option("--wait", is_flag=True, help="Return when the old workers are gone.")
@click.option("--timeout", type=float, default=0.0, help="Seconds to wait at most; by default as long as it takes.")
def recycle_workers(url: str, token: str, *, wait: bool, timeout: float) -> None:
    """Have every worker replaced, each by one that has loaded before the old one leaves."""
    server = Server(url, token)
    before = server.readiness().get("trouble", "") if wait else ""
    begun = time.monotonic()
    status, answer = server.ask("POST", "/v2/workers/recycle")
    if status >= 300:
        why = answer.get("error", answer) if isinstance(answer, dict) else answer
        raise click.ClickException(f"{server.url} refuses, {status}: {why}")
    old = set(answer["replaced"])
    click.echo(f"to be replaced: {_listed(old)}")
    if wait:
        new = _replaced(server, old, before, timeout)
        click.echo(f"replaced by {_listed(new)} in {time.monotonic() - begun:.1f} s")

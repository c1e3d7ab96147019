"""The control socket: one JSON line a request, one a answer, any number on a connection, any number of connections.

A request is `{"op": ..., ...}`; its answer has `"ok": true` and what the operation gives, or `"ok": false` with `error`, the HTTP
`status` and the `reason` code. An operation that has begun goes on when its client hangs up.

    index {ready}                      models: rows of name, version, state, reason
    load {name, parameters, force}     parameters: `config`, `file:<version>/<path>`
    unload {name}                      unloaded: processes, seconds, memory_before, memory_after and, with a GPU, gpu_memory_...
    reload {}                          failures by name; everything that is served is loaded anew
    renew {name}                       the instances are replaced one after the other
    status {}                          settled, failures, models
    wait_settled {}                    settled, failures; once the start's models are loaded or have failed
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from prefork.errors import BadRequest, PreforkError, Unavailable
from prefork.supervisor import queue, reports
from prefork.supervisor.lifecycle import Lifecycle

_log = logging.getLogger("prefork.supervisor")
_LONGEST = 1 << 30
"""Bytes of a request: it may hold a model's files."""
_BACKLOG = 64
_LOADS = frozenset({"load", "reload", "renew"})


class Request(msgspec.Struct, frozen=True):
    """What a client asks for."""

    op: str
    name: str = ""
    ready: bool = False
    force: bool = False
    parameters: dict[str, Any] = {}


class Control:
    """Serves the control socket at a path."""

    def __init__(self, path: Path, lifecycle: Lifecycle) -> None:
        self._path = path
        self._lifecycle = lifecycle
        self._server: asyncio.Server | None = None
        self._doing: set[asyncio.Task[Any]] = set()
        self._loads: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        self._open: set[asyncio.StreamWriter] = set()
        self._operations: dict[str, Callable[[Request], Awaitable[dict[str, Any]]]] = {
            "index": self._index,
            "load": self._load,
            "unload": self._unload,
            "reload": self._reload,
            "renew": self._renew,
            "status": self._status,
            "wait_settled": self._wait_settled,
        }

    async def open(self) -> None:
        """Listen. The socket appears at its path once it can be connected to."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        beside = self._path.with_name(f".{self._path.name}.new")
        beside.unlink(missing_ok=True)
        queue.bind(listener, beside)
        listener.listen(_BACKLOG)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LONGEST, backlog=_BACKLOG)
        beside.replace(self._path)

    def give_up_loads(self) -> None:
        """Tell whoever waits for a load, and whoever asks for one from now on, that the server is stopping."""
        self._is_stopping = True
        for each in self._loads:
            each.cancel()

    async def close(self) -> None:
        """Give up all operations, and hang up."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for each in self._doing:
            each.cancel()
        if self._doing:
            await asyncio.wait(self._doing)
        for writer in list(self._open):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while line := await reader.readline():
                task = asyncio.ensure_future(self._answer(line))
                self._doing.add(task)
                task.add_done_callback(self._doing.discard)
                writer.write(msgspec.json.encode(await asyncio.shield(task)) + b"\n")
                await writer.drain()
        except (OSError, ValueError, asyncio.CancelledError) as error:  # ValueError: a line that is too long
            _log.debug("a client of the control socket has gone: %s", error)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = msgspec.json.decode(line, type=Request)
            return {"ok": True, **await self._done(request)}
        except msgspec.MsgspecError as error:
            return _refusal(BadRequest(f"the request is none: {error}"))
        except PreforkError as error:
            return _refusal(error)
        except asyncio.CancelledError:
            return _refusal(_stopping())
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the other models
            _log.exception("an operation failed")
            return _refusal(PreforkError(f"{type(error).__name__}: {error}"))

    async def _done(self, request: Request) -> dict[str, Any]:
        operation, task = self._operation(request.op), asyncio.current_task()
        if task is None or request.op not in _LOADS:
            return await operation(request)
        if self._is_stopping:
            raise _stopping()
        self._loads.add(task)
        try:
            return await operation(request)
        finally:
            self._loads.discard(task)

    def _operation(self, name: str) -> Callable[[Request], Awaitable[dict[str, Any]]]:
        if name not in self._operations:
            raise BadRequest(f"op: there is no {name!r}; there are {', '.join(self._operations)}")
        return self._operations[name]

    async def _index(self, request: Request) -> dict[str, Any]:
        return {"models": await reports.index(self._lifecycle, only_ready=request.ready)}

    async def _load(self, request: Request) -> dict[str, Any]:
        self._lifecycle.check_control()
        _log.info("%s: a load is asked for", request.name[:200])
        await self._lifecycle.load(request.name, request.parameters, force=request.force)
        return {}

    async def _unload(self, request: Request) -> dict[str, Any]:
        self._lifecycle.check_control()
        _log.info("%s: an unload is asked for", request.name[:200])
        return {"unloaded": await self._lifecycle.unload(request.name)}

    async def _reload(self, _: Request) -> dict[str, Any]:
        return {"failures": await self._lifecycle.reload()}

    async def _renew(self, request: Request) -> dict[str, Any]:
        await self._lifecycle.renew(request.name)
        return {}

    async def _status(self, _: Request) -> dict[str, Any]:
        return reports.status(self._lifecycle)

    async def _wait_settled(self, _: Request) -> dict[str, Any]:
        await self._lifecycle.settled.wait()
        return {"settled": True, "failures": self._lifecycle.failures}


def _stopping() -> Unavailable:
    return Unavailable("the server is stopping")


def _refusal(error: PreforkError) -> dict[str, Any]:
    return {"ok": False, "error": error.message, "status": error.status, "reason": error.reason}

"""Models whose requests can be held: request number N enters predict, leaves `entered.N`, and stays while `hold.N` exists.

It leaves `left.N` when it returns, `cancelled.N` when it saw that nobody waits any more. N is the one cell of X.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from running import Running, serving, wait_until

_HEAD = """
import asyncio, os, pathlib, threading, time

PLACE = pathlib.Path(os.environ["PLACE"])

def number(X):
    return int(X[0][0])

def mark(what, n):
    new = PLACE / f"{what}.{n}.{os.getpid()}.{threading.get_ident()}"
    new.write_text(str(os.getpid()))
    new.rename(PLACE / f"{what}.{n}")

def held(n):
    return (PLACE / f"hold.{n}").exists()
"""

SLEEPING = (
    _HEAD
    + """
class Model:
    def predict(self, X, names, meta=None):
        n = number(X)
        mark("entered", n)
        while held(n):
            if meta["cancelled"]():
                mark("cancelled", n)
            time.sleep(0.005)
        mark("left", n)
        return X
"""
)

STUBBORN = SLEEPING.replace(", meta=None", "").replace(
    '            if meta["cancelled"]():\n                mark("cancelled", n)\n', ""
)

SPINNING = (
    _HEAD
    + """
class Model:
    def predict(self, X, names):
        n = number(X)
        mark("entered", n)
        while held(n):
            for _ in range(20000):
                pass
        return X
"""
)

ASYNC = (
    _HEAD
    + """
class Model:
    async def predict(self, X, names):
        n = number(X)
        mark("entered", n)
        try:
            while held(n):
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            mark("cancelled", n)
            raise
        mark("left", n)
        return X
"""
)

STREAM = (
    _HEAD
    + """
class Model:
    def predict(self, X, names, meta=None):
        n = number(X)
        mark("entered", n)
        try:
            for part in range(3):
                while part and held(n):
                    if meta["cancelled"]():
                        mark("cancelled", n)
                    time.sleep(0.005)
                yield [[part]]
        finally:
            mark("left", n)
"""
)


class Gated:
    """A server with a model of this file, and the files by which it is watched and held."""

    def __init__(self, running: Running, place: Path) -> None:
        self.running = running
        self.place = place
        self.futures: list[threading.Thread] = []

    def hold(self, *numbers: int) -> None:
        for number in numbers:
            (self.place / f"hold.{number}").touch()

    def release(self, *numbers: int) -> None:
        for number in numbers:
            (self.place / f"hold.{number}").unlink(missing_ok=True)

    def has(self, what: str, number: int) -> bool:
        return (self.place / f"{what}.{number}").exists()

    def wait(self, what: str, number: int) -> int:
        """Wait for a mark; the process that left it."""
        path = self.place / f"{what}.{number}"
        wait_until(lambda: path.exists() and path.read_text(), f"{what}.{number}")
        return int(path.read_text())

    def ask(self, number: int, **headers: str) -> Future[httpx.Response]:
        """Ask in a thread."""
        future: Future[httpx.Response] = Future()

        def run() -> None:
            try:
                with httpx.Client(base_url=self.running.url, timeout=60) as client:
                    future.set_result(client.post("/predict", json=body(number), headers=headers))
            except Exception as error:  # noqa: BLE001 - the asker raises it
                future.set_exception(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.futures.append(thread)
        return future

    def busy(self, number: int = 1, **headers: str) -> Future[httpx.Response]:
        """A request that the model has begun with, and holds."""
        self.hold(number)
        asked = self.ask(number, **headers)
        self.wait("entered", number)
        return asked

    def raw(self, number: int, path: str = "/predict", head: str = "") -> socket.socket:
        """A request on a socket of its own, sent whole."""
        client = socket.create_connection(("127.0.0.1", self.running.port), timeout=60)
        client.sendall(request(number, path, head))
        return client


def of_class(worker_class: str) -> tuple[str, ...]:
    """The flags for a worker class, with two threads where that does not make it another one."""
    return ("--worker-class", worker_class, "--threads", "1" if worker_class == "sync" else "2")


def body(number: int) -> dict:
    return {"data": {"ndarray": [[number]]}}


def request(number: int, path: str = "/predict", head: str = "") -> bytes:
    content = json.dumps(body(number)) if path == "/predict" else json.dumps({"INPUT": [[number]]})
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(content)}"]
    return ("\r\n".join(lines) + "\r\n" + head + "\r\n" + content).encode()


@contextmanager
def gated(place: Path, source: str, *flags: str):
    """A server with one of the models, one worker unless the flags say otherwise; every request is let go at the end."""
    with serving(place, source, "--workers", "1", *flags, env={"PLACE": str(place)}) as running:
        server = Gated(running, place)
        try:
            yield server
        finally:
            for held in place.glob("hold.*"):
                held.unlink()
            for thread in server.futures:
                thread.join(20)


def children(pid: int) -> set[int]:
    """The children of a process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return {
            int(each)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for each in (task / "children").read_text().split()
        }
    return set()


def kill(pid: int, number: int = signal.SIGTERM) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)

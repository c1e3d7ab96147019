"""A real server in a process of its own, started as a user starts it, on a free port of the loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import httpx

SOURCE = Path(__file__).parents[1] / "server"
DEADLINE = 60.0


_PORTS = count(int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) * 2000 + os.getpid() % 1000)


def free_port() -> int:
    """One that nobody has, of a range that is this test process's own and that the kernel gives to no client."""
    while True:
        port = 10_000 + next(_PORTS) % 20_000
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(condition: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Wait for a condition, at most `deadline` seconds."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"waited {deadline} s for {what}"
        time.sleep(0.01)


class Running:
    """A server that was started: its address, process and log so far."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def wait_ready(self) -> None:
        def settled() -> bool:
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}:\n{self.log}"
            return self.accepts()

        wait_until(settled, "the port to open")

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30)

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Send the signal and wait for the end; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signum)
        return self.process.wait(DEADLINE)


@contextmanager
def serving(
    folder: Path, source: str, *flags: str, model: str = "Model", env: dict[str, str] | None = None, ready: bool = True
) -> Iterator[Running]:
    """`prefork serve MODEL` in `folder`, where `source` is the text of MODEL.py; killed at the end if need be."""
    (folder / f"{model.partition(':')[0]}.py").write_text(textwrap.dedent(source))
    with launched(folder, model, *flags, env=env, ready=ready) as running:
        yield running


@contextmanager
def launched(folder: Path, *flags: str, env: dict[str, str] | None = None, ready: bool = True) -> Iterator[Running]:
    """`prefork serve` with these flags in `folder`; killed at the end if need be."""
    port = free_port()
    log = folder / "server.log"
    command = [sys.executable, "-m", "prefork", "serve", *flags, "--bind", f"127.0.0.1:{port}"]
    full = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=full, stdout=out, stderr=subprocess.STDOUT)
    running = Running(process, port, log)
    try:
        if ready:
            running.wait_ready()
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

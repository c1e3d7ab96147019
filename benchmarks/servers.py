"""The measured servers: how each is started, how it is known to be up, and what its processes have cost."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
MODELS = HERE / "models"
GUNICORN = [sys.executable, "-m", "gunicorn", "--no-control-socket", "--log-level", "warning"]
TICK = os.sysconf("SC_CLK_TCK")
START_LIMIT = 60.0
STOP_LIMIT = 5.0


@dataclass(frozen=True)
class Server:
    """A name, and the command that serves on a port."""

    name: str
    command: Callable[[int], list[str]]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Running:
    """A started server; all its processes are in the session that `pid` leads."""

    server: Server
    port: int
    pid: int

    def post(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers with lower-case names, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def cpu(self) -> float:
        """CPU seconds, user and system, that all its processes and their ended children have used."""
        return sum(used for session, _, used in _processes().values() if session == self.pid)


def gunicorn(name: str, application: str, *flags: str) -> Server:
    """One of the bare applications beside this file, on gunicorn itself."""
    path = os.pathsep.join([str(HERE), str(MODELS)])
    return Server(
        name,
        lambda port: [*GUNICORN, "--workers", "2", "--bind", f"127.0.0.1:{port}", *flags, application],
        {"PYTHONPATH": path},
    )


def prefork(name: str, model: str, *flags: str, workers: int = 2) -> Server:
    """Prefork as a user starts it."""
    serve = [sys.executable, "-m", "prefork", "serve", model, "--workers", str(workers), *flags]
    return Server(name, lambda port: [*serve, "--bind", f"127.0.0.1:{port}"])


def seldon(name: str, venv: Path, model: str, *flags: str) -> Server:
    """The real Seldon Core wrapper out of an environment of its own."""

    def command(port: int) -> list[str]:
        ports = ["--http-port", str(port), "--grpc-port", str(free_port()), "--metrics-port", str(free_port())]
        return [str(venv / "bin/seldon-core-microservice"), model, "--workers", "2", *ports, *flags]

    return Server(name, command, {"SELDON_LOG_LEVEL": "WARNING"})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(server: Server) -> Iterator[Running]:
    """Start the server, wait until it accepts, and end every one of its processes afterwards."""
    port = free_port()
    # One BLAS thread for everybody: two workers on two cores would only fight, and Prefork sets it anyway.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | server.environment
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            server.command(port), cwd=MODELS, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait(server, process, port, log.fileno())
            yield Running(server, port, process.pid)
        finally:
            _end(process)


def _wait(server: Server, process: subprocess.Popen[bytes], port: int, log: int) -> None:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    said = os.pread(log, 10_000, max(0, os.fstat(log).st_size - 10_000)).decode(errors="replace")
    raise RuntimeError(f"{server.name} did not start: {' '.join(server.command(port))}\n{said}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM to the root; what has not gone in STOP_LIMIT is killed (one of the peers never leaves on TERM)."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_LIMIT)
    while left := alive(process.pid):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    process.wait()


def alive(session: int) -> list[int]:
    """The processes of a session that run; what has ended and waits for its parent is none of them."""
    return [pid for pid, (of, state, _) in _processes().items() if of == session and state != "Z"]


def _processes() -> dict[int, tuple[int, str, float]]:
    """Every process: its session, its state, and the CPU seconds of itself and of the children that it has waited for."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold blanks: the fields are counted from behind it (session is field 6).
            fields = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = (int(fields[3]), fields[0], sum(map(int, fields[11:15])) / TICK)
    return found

"""A server of a repository, as a user starts it, and what all its processes have at a moment."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Self

from benchmarks import servers
from benchmarks.servers import Running, Server

BODY = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP64", "data": [1, 2, 3, 4]}]}
TOKEN = "benchmark"


@dataclass(frozen=True)
class Holdings:
    """What the processes of a server hold: bytes of proportional memory, descriptors, threads, processes, files."""

    memory: int
    descriptors: int
    threads: int
    processes: int
    files: int


@contextmanager
def serving(repository: Path, run_dir: Path, *flags: str, workers: int = 2) -> Iterator[Running]:
    """A server of the repository."""
    run_dir.mkdir(exist_ok=True)
    serve = [sys.executable, "-m", "prefork", "serve", "--repository", str(repository), "--workers", str(workers)]
    command = [*serve, "--run-dir", str(run_dir), *flags]
    server = Server(
        "repository", lambda port: [*command, "--bind", f"127.0.0.1:{port}"], {"PREFORK_ADMIN_TOKEN": TOKEN}
    )
    with servers.running(server) as up:
        yield up


def control(up: Running, what: str, name: str) -> tuple[int, bytes]:
    """`load` or `unload` of a model: the status and the body."""
    status, _, body = up.post(f"/v2/repository/models/{name}/{what}", {"Authorization": f"Bearer {TOKEN}"}, b"{}")
    return status, body


def holdings(up: Running, run_dir: Path) -> Holdings:
    """What all its processes hold now. A process may end meanwhile."""
    pids = descendants(up.pid)
    memory = descriptors = threads = 0
    for pid in pids:
        with suppress(OSError):
            memory += _proportional(pid)
            descriptors += _count(f"/proc/{pid}/fd")
            threads += _count(f"/proc/{pid}/task")
    return Holdings(memory, descriptors, threads, len(pids), sum(1 for _ in run_dir.rglob("*")))


def descendants(pid: int) -> list[int]:
    """A process and all below it; each model's process is the leader of a session of its own."""
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        for task in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            with suppress(OSError):
                waiting += map(int, task.read_text().split())
    return found


def _proportional(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _count(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def slopes(samples: list[Holdings]) -> list[float]:
    """The least-squares growth a cycle of each part of what is held."""
    count = len(samples)
    middle = (count - 1) / 2
    spread = sum((at - middle) ** 2 for at in range(count))
    columns = zip(*map(astuple, samples), strict=True)
    return [sum((at - middle) * value for at, value in enumerate(column)) / spread for column in columns]


class Traffic:
    """Clients that ask one after the other without a pause, each on a kept connection, until told to stop."""

    def __init__(self, up: Running, path: str, clients: int, body: Callable[[], object] = lambda: BODY) -> None:
        self.statuses: Counter[int] = Counter()
        self.answers: Counter[str] = Counter()
        self._up, self._path, self._body = up, path, body
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()

    @property
    def failed(self) -> int:
        """Requests that were not answered 200."""
        return sum(count for status, count in self.statuses.items() if status != 200)

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._up.port, timeout=30)
        while not self._stop.is_set():
            try:
                connection.request("POST", self._path, json.dumps(self._body()))
                answer = connection.getresponse()
                text, status = answer.read().decode(), answer.status
            except OSError as error:
                connection.close()
                text, status = "", 0
                with self._lock:
                    self.answers[type(error).__name__] += 1
            with self._lock:
                self.statuses[status] += 1
                self.answers[text] += 1
        connection.close()

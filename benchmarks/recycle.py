"""`python -m benchmarks.recycle`: what clients see while workers are replaced, beside the same without; into docs/operations.md.

2 workers whose model loads for 3 s, 60 s of requests at a steady rate: half of them on kept connections, half on new ones.
Every request has its time; what it takes counts from that time on, so that a request that waits for the one before is
slow as well. A kept connection that the server has closed is opened anew, as clients do; a failed request is not repeated.
"""

from __future__ import annotations

import argparse
import http.client
import math
import os
import select
import signal
import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report, servers
from benchmarks.servers import Running, Server
from benchmarks.wires import JSON, seldon

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
WORKERS = 2
CLIENTS = 8
HUPS = 3
MOST = 3.0
"""How many times the p99 of the run without recycling the slowest request of the other one may take."""

LEAK = ("-p", "leak=5")
LEAK_SECONDS = 30.0
"""How long the leak may go on where nobody recycles: 6 GB at 40 requests a second."""


@dataclass
class Seen:
    """What the clients saw: of each request how long it took and when it was due, both in seconds; what failed, by kind.

    replaced: the workers that were told to go.
    """

    requests: list[tuple[float, float]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    replaced: int = 0

    @property
    def slowest(self) -> float:
        """Seconds."""
        return max(taken for taken, _ in self.requests)

    def percentile(self, number: int) -> float:
        """Seconds."""
        return statistics.quantiles([taken for taken, _ in self.requests], n=100)[number - 1]


class Client(threading.Thread):
    """Asks `count` times, every `period` seconds from `first` on: on one connection while that is open, or each time on a new one."""

    def __init__(self, up: Running, seen: Seen, first: float, period: float, count: int, *, keeps: bool) -> None:
        super().__init__(daemon=True)
        self._up, self._seen, self._keeps = up, seen, keeps
        self._dues = [first + number * period for number in range(count)]
        self._line: http.client.HTTPConnection | None = None

    def run(self) -> None:
        for due in self._dues:
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._ask()
            except (ConnectionError, http.client.BadStatusLine):
                self._fail("reset")
            except OSError as error:
                self._fail(type(error).__name__)
            self._seen.requests.append((time.monotonic() - due, due))
        self._close()

    def _ask(self) -> None:
        if self._line is not None and (not self._keeps or is_closed(self._line)):
            self._close()
        if self._line is None:
            self._line = http.client.HTTPConnection("127.0.0.1", self._up.port, timeout=30)
        headers = JSON if self._keeps else JSON | {"Connection": "close"}
        self._line.request("POST", "/predict", seldon("tiny").body, headers)
        answer = self._line.getresponse()
        answer.read()
        if answer.status != 200:
            self._fail(str(answer.status))
        elif not self._keeps or answer.will_close:
            self._close()

    def _fail(self, kind: str) -> None:
        self._seen.failures[kind] += 1
        self._close()

    def _close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def is_closed(line: http.client.HTTPConnection) -> bool:
    """Whether the server has closed a connection on which nothing is under way: what every client with a pool looks for."""
    return line.sock is None or bool(select.select([line.sock], [], [], 0)[0])


def watch(up: Running, rate: float, seconds: float, hups: int = 0) -> Seen:
    """Ask at that rate for so long, with so many HUPs meanwhile."""
    seen = Seen()
    begun = time.monotonic() + 0.1
    clients = [
        Client(up, seen, begun + number / rate, CLIENTS / rate, round(seconds * rate / CLIENTS), keeps=number % 2 == 0)
        for number in range(CLIENTS)
    ]
    for each in clients:
        each.start()
    for number in range(hups):
        time.sleep(max(0.0, begun + seconds * (number + 0.5) / hups - time.monotonic()))
        os.kill(up.pid, signal.SIGHUP)
    for each in clients:
        each.join()
    seen.replaced = replaced(up)
    seen.requests = [(taken, due - begun) for taken, due in seen.requests]
    return seen


def replaced(up: Running) -> int:
    """The workers that were told to go, as the metrics have it."""
    line = http.client.HTTPConnection("127.0.0.1", up.port, timeout=30)
    line.request("GET", "/metrics")
    page = line.getresponse().read().decode()
    line.close()
    return sum(int(float(row.split()[-1])) for row in page.splitlines() if row.startswith("prefork_recycles_total"))


@dataclass(frozen=True)
class Run:
    """A row: what is served, how many HUPs it gets, the row that it is held against, and for how many seconds at most it runs."""

    server: Server
    hups: int = 0
    against: str = ""
    most: float = math.inf


def runs(max_requests: int) -> dict[str, Run]:
    """The rows by their names: each run without recycling, and behind it the one with."""
    quiet, leaks = "no recycling", f"5 MB a request leak, no recycling, {LEAK_SECONDS:g} s"
    limit = ("--max-worker-memory", "400M")
    return {
        quiet: Run(_server("quiet")),
        f"`max_requests` {max_requests}, HUP {HUPS} times": Run(
            _server("requests", "--max-requests", str(max_requests)), HUPS, quiet
        ),
        # Fresh memory may be slow by itself, so that a leak is held against a leak.
        leaks: Run(_server("leaks", *LEAK), most=LEAK_SECONDS),
        "5 MB a request leak, `max_worker_memory` 400M": Run(_server("limited", *LEAK, *limit), against=leaks),
    }


def _server(name: str, *flags: str) -> Server:
    return servers.prefork(name, "Slow", *flags, workers=WORKERS)


def measure(rate: float, seconds: float, max_requests: int, only: str = "") -> str:
    """The rows whose name holds `only` and those that they are held against, as a table."""
    table = runs(max_requests)
    wanted = [name for name in table if only in name]
    wanted += [table[name].against for name in wanted]
    results: dict[str, Seen] = {}
    for name, run in table.items():
        if name in wanted:
            with servers.running(run.server) as up:
                settle(up)
                results[name] = watch(up, rate, min(seconds, run.most), run.hups)
            _print(name, results[name])
    rows = [row(name, seen, results.get(table[name].against)) for name, seen in results.items()]
    head = [
        "",
        "requests",
        "workers replaced",
        "failed",
        "resets",
        "p50 ms",
        "p99 ms",
        "slowest ms",
        "slowest of p99 without",
    ]
    return report.table(head, rows)


def _print(name: str, seen: Seen) -> None:
    worst = ", ".join(f"{1000 * taken:.0f} ms at {at:.1f} s" for taken, at in sorted(seen.requests, reverse=True)[:5])
    failed = f"{sum(seen.failures.values())} failed {dict(seen.failures) or ''}"
    print(f"  {name}: {seen.replaced} replaced, {failed}, p99 {1000 * seen.percentile(99):.0f} ms, {worst}", flush=True)


def row(name: str, seen: Seen, other: Seen | None) -> list[str]:
    ratio = f"{seen.slowest / other.percentile(99):.1f} (goal: under {MOST:g})" if other else ""
    figures = [1000 * each for each in (seen.percentile(50), seen.percentile(99), seen.slowest)]
    counts = (len(seen.requests), seen.replaced, sum(seen.failures.values()), seen.failures["reset"])
    return [name, *(f"{each:,}" for each in counts), *(f"{each:.0f}" for each in figures), ratio]


def settle(up: Running) -> None:
    """Wait until both workers have loaded, and have answered."""
    deadline = time.monotonic() + servers.START_LIMIT
    while _ready(up) < WORKERS:
        if time.monotonic() > deadline:
            raise RuntimeError("the workers did not load")
        time.sleep(0.1)
    for _ in range(20):
        up.post("/predict", JSON, seldon("tiny").body)


def _ready(up: Running) -> int:
    line = http.client.HTTPConnection("127.0.0.1", up.port, timeout=30)
    line.request("GET", "/ready")
    found = line.getresponse().read().count(b'"state":"ready"')
    line.close()
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recycle", description=__doc__)
    parser.add_argument("--rate", type=float, default=40.0, help="requests a second, in all")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of one run")
    parser.add_argument("--max-requests", type=int, default=200)
    parser.add_argument(
        "--only", default="", help="the rows whose name holds this, and those they are held against; writes no page"
    )
    chosen = parser.parse_args()
    text = measure(chosen.rate, chosen.seconds, chosen.max_requests, chosen.only)
    how = f"{chosen.rate:g} requests a second for {chosen.seconds:g} s, `load()` of 3 s, `predict` of 20 ms, {WORKERS} workers."
    print(f"\n{text}", flush=True)
    if not chosen.only:
        report.write("recycle", f"{report.machine(how)}\n{text}", PAGE)


if __name__ == "__main__":
    main()

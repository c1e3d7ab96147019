"""How keep-alive connections that are opened at once fall on the workers.

A try opens all connections in a burst and asks each once for the worker that answers. Then a third of them, drawn by
chance, is closed and opened again, three times over, and all are asked again: as clients come and go.
"""

from __future__ import annotations

import http.client
import json
import random
from collections import Counter
from dataclasses import dataclass

from benchmarks import servers
from benchmarks.servers import Running, Server
from benchmarks.wires import JSON, seldon

TRIES = 20
TURNS = 3
LIMIT = 1.25
SETS = [(16, 2), (64, 2), (16, 4), (64, 4)]
PREFORK = "Prefork"


@dataclass(frozen=True)
class Spread:
    """Of the busiest worker: the largest multiple of its fair share, and the tries in which it stayed within LIMIT."""

    opened: list[float]
    churned: list[float]

    def within(self) -> int:
        """How many tries kept LIMIT throughout."""
        return sum(max(pair) <= LIMIT for pair in zip(self.opened, self.churned, strict=True))


def targets() -> dict[str, tuple[dict[int, Server], str]]:
    """Each row: its server by the number of workers, and its path."""
    counts = sorted({workers for _, workers in SETS})
    bare = {n: servers.gunicorn("floor", "floor_asgi:app", "-k", "asgi", "--workers", str(n)) for n in counts}
    ours = {n: servers.prefork("prefork", "Pid", workers=n) for n in counts}
    return {"gunicorn ASGI, bare": (bare, "/pid"), PREFORK: (ours, "/predict")}


def run(chosen: dict[str, tuple[dict[int, Server], str]], tries: int) -> dict[tuple[str, int, int], Spread]:
    """{(row, connections, workers): Spread}."""
    results = {}
    for name, (by_workers, path) in chosen.items():
        for connections, workers in SETS:
            with servers.running(by_workers[workers]) as up:
                _settle(up, path, workers)
                pairs = [_attempt(up, path, connections, workers) for _ in range(tries)]
            spread = results[name, connections, workers] = Spread([a for a, _ in pairs], [b for _, b in pairs])
            print(
                f"  {name:<22} {connections:>2} on {workers}: {spread.within()} of {tries} within {LIMIT}", flush=True
            )
    return results


def _settle(up: Running, path: str, workers: int) -> None:
    """Ask on new connections until every worker has answered once: the port opens with the first of them."""
    seen = set()
    for _ in range(2000):
        line = _connect(up)
        seen.update(_ask([line], path))
        line.close()
        if len(seen) == workers:
            return
    raise RuntimeError(f"{up.server.name}: only {len(seen)} of {workers} workers answered")


def _attempt(up: Running, path: str, connections: int, workers: int) -> tuple[float, float]:
    """The busiest worker's multiple of its share: after the burst, and the worst as connections come and go."""
    lines = [_connect(up) for _ in range(connections)]
    opened = _share(_ask(lines, path), workers)
    worst = opened
    for _ in range(TURNS):
        for index in random.sample(range(connections), connections // 3):
            lines[index].close()
            lines[index] = _connect(up)
        worst = max(worst, _share(_ask(lines, path), workers))
    for line in lines:
        line.close()
    return opened, worst


def _connect(up: Running) -> http.client.HTTPConnection:
    line = http.client.HTTPConnection("127.0.0.1", up.port, timeout=10)
    line.connect()
    return line


def _ask(lines: list[http.client.HTTPConnection], path: str) -> list[int]:
    """The pid that answers on each; all requests are out before the first answer is read."""
    body = seldon("tiny").body
    for line in lines:
        line.request("POST", path, body, JSON)
    return [int(json.loads(line.getresponse().read())["data"]["ndarray"][0][0]) for line in lines]


def _share(pids: list[int], workers: int) -> float:
    return max(Counter(pids).values()) / (len(pids) / workers)

"""Requests a second of a model that waits 20 ms, beside the number that its connections could have at most."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks import servers
from benchmarks.load import measure
from benchmarks.servers import Server
from benchmarks.wires import JSON, Call, sample, seldon

CONNECTIONS = (32, 64)
PAUSE = 0.02
ASYNC = "Prefork, async def predict"
THREADS = "Prefork, threads 32"


def targets(peer: Path | None) -> dict[str, tuple[Server, str]]:
    """Each row: its server and path."""
    rows = {
        "gunicorn ASGI, bare": (servers.gunicorn("floor", "floor_asgi:app", "-k", "asgi"), "/sleep"),
        ASYNC: (servers.prefork("async", "SleepAsync"), "/predict"),
        THREADS: (servers.prefork("threads", "Sleep", "--threads", "32"), "/predict"),
    }
    if peer is not None:
        rows["Seldon wrapper 1.18.2, threads 32"] = (
            servers.seldon("seldon", peer, "Sleep", "--threads", "32"),
            "/predict",
        )
    return rows


def run(chosen: dict[str, tuple[Server, str]], rounds: int, seconds: int) -> dict[tuple[str, int], float]:
    """{(row, connections): median requests a second}."""
    results = {}
    body = seldon("tiny").body
    for name, (server, path) in chosen.items():
        with servers.running(server) as up:
            for connections in CONNECTIONS:
                call = Call(path, JSON, body, sample("tiny"), "seldon")
                call.check(up.post(path, JSON, body)[2], {})
                rates = [measure(up, call, connections=connections, seconds=seconds).rate for _ in range(rounds)]
                results[name, connections] = statistics.median(rates)
                print(f"  {name:<40} {connections:>3} connections {results[name, connections]:>7.0f}/s", flush=True)
    return results

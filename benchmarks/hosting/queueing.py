"""How near two instances come to an ideal queue that both take from, and what batching is worth."""

from __future__ import annotations

import heapq
import http.client
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks import load
from benchmarks.hosting import models
from benchmarks.hosting.served import BODY, serving
from benchmarks.report import table
from benchmarks.servers import Running
from benchmarks.wires import Call

SECONDS = 0.005
CONNECTIONS, INSTANCES = 16, 2
WORKERS = (1, 2)
CLIENTS = 64


def measure(rounds: int, seconds: float) -> str:
    """A model that keeps a core busy for 5 ms, 2 instances, 16 connections that ask without a pause; medians of rounds in turn."""
    found: dict[int, list[load.Sample]] = {workers: [] for workers in WORKERS}
    for _ in range(rounds):
        for workers, samples in found.items():
            samples.append(_spinning(workers, seconds))
    times, ideal_rate = simulate(CONNECTIONS, INSTANCES, SECONDS, round(seconds * INSTANCES / SECONDS))
    ideal_p99 = _p99(times) * 1000
    rows = [["ideal", f"{ideal_p99:.1f} ms", "", f"{ideal_rate:,.0f}", ""]]
    for workers, samples in found.items():
        p99 = statistics.median(each.p99 for each in samples) / 1000
        rate = statistics.median(each.rate for each in samples)
        name = "1 worker" if workers == 1 else f"{workers} workers"
        rows.append([name, f"{p99:.1f} ms", f"{p99 / ideal_p99:.2f}", f"{rate:,.0f}", f"{rate / ideal_rate:.3f}"])
    head = ["5 ms, 2 instances, 16 connections", "p99", "goal: at most 1.25 x", "requests/s", "goal: at least 0.95 x"]
    return table(head, rows)


def _spinning(workers: int, seconds: float) -> load.Sample:
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        models.write(repository, "it", models.SPINNING.format(seconds=SECONDS), instances=INSTANCES)
        with serving(repository, Path(folder) / "run", workers=workers) as up:
            call = Call("/v2/models/it/infer", {}, json.dumps(BODY).encode(), np.empty(0), "v2")
            return load.measure(up, call, connections=CONNECTIONS, seconds=seconds)


def batching(requests: int) -> str:
    """64 clients of a model whose batch of 16 rows takes twice as long as one row, with and without batching."""
    rates = {}
    for name, config in {
        "no batching": {},
        "max_batch_size: 16": {"batching": {"max_batch_size": 16, "max_batch_delay": 2000}},
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            repository = Path(folder) / "models"
            models.write(repository, "it", models.BATCHED, **config)
            with serving(repository, Path(folder) / "run") as up:
                rates[name] = _ask(up, "it", CLIENTS, requests)[1]
    base = rates["no batching"]
    rows = [[name, f"{rate:,.0f}", f"{rate / base:.1f}"] for name, rate in rates.items()]
    return table(["64 clients (goal: at least 5 x)", "requests/s", "x"], rows)


def simulate(connections: int, instances: int, seconds: float, requests: int) -> tuple[list[float], float]:
    """The times and the rate of closed-loop clients of one queue, first come first served, without any cost around it."""
    free = [0.0] * instances
    arrivals = [(0.0, number) for number in range(connections)]
    times: list[float] = []
    while len(times) < requests:
        arrived, number = heapq.heappop(arrivals)
        begun = max(arrived, heapq.heappop(free))
        heapq.heappush(free, begun + seconds)
        heapq.heappush(arrivals, (begun + seconds, number))
        times.append(begun + seconds - arrived)
    return times, requests / max(free)


def _ask(up: Running, name: str, clients: int, requests: int) -> tuple[list[float], float]:
    times: list[float] = []
    lock = threading.Lock()
    threads = [
        threading.Thread(target=_client, args=(up, name, requests // clients, times, lock)) for _ in range(clients)
    ]
    begun = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return times, len(times) / (time.perf_counter() - begun)


def _client(up: Running, name: str, requests: int, times: list[float], lock: threading.Lock) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", up.port, timeout=60)
    body = json.dumps(BODY)
    for _ in range(requests):
        begun = time.perf_counter()
        connection.request("POST", f"/v2/models/{name}/infer", body)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}")
        with lock:
            times.append(time.perf_counter() - begun)
    connection.close()


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]

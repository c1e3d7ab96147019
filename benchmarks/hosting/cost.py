"""What the hop to a model's own process costs a tiny request, and how fast large tensors cross it."""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import load, servers
from benchmarks.hosting.served import descendants
from benchmarks.report import table
from benchmarks.servers import TICK, Running
from benchmarks.wires import seldon

ECHO = """
class Echo:
    def predict(self, X, names):
        return X
"""
HOSTS: dict[str, tuple[str, ...]] = {"host: worker, threads: 1": (), "host: process": ("--host", "process")}
SIZES = {"1 MiB": 1 << 20, "10 MiB": 10 << 20}


class Measured(Running):
    """A server whose model's processes are in sessions of their own."""

    def cpu(self) -> float:
        """CPU seconds of all below the root, however their sessions are."""
        return sum(map(_used, descendants(self.pid)))


def measure(rounds: int, seconds: float) -> str:
    """CPU of all processes a request, the hosts in turn; and echoes of large tensors."""
    costs: dict[str, list[float]] = {name: [] for name in HOSTS}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Echo.py").write_text(ECHO)
        rows = {name: servers.prefork(name, "Echo", "--model-dir", folder, *flags) for name, flags in HOSTS.items()}
        for _ in range(rounds):
            for name, server in rows.items():
                with servers.running(server) as up:
                    mine = Measured(up.server, up.port, up.pid)
                    load.measure(mine, seldon("tiny"), connections=16, seconds=1)
                    costs[name].append(load.measure(mine, seldon("tiny"), connections=16, seconds=seconds).cpu)
    medians = {name: statistics.median(found) for name, found in costs.items()}
    base = medians["host: worker, threads: 1"]
    found = [[name, f"{cost:,.0f}", f"{cost / base:.2f}"] for name, cost in medians.items()]
    return table(["CPU us of a tiny request (goal: at most 2.2 x)", "us", "x"], found)


def _used(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK


def throughput(rounds: int) -> str:
    """V2 binary echoes over HTTP, one connection, in both hosts: what the hop takes away."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Echo.py").write_text(ECHO)
        for label, size in SIZES.items():
            found = {name: _rate(folder, flags, size, rounds) for name, flags in HOSTS.items()}
            rows.append([label, *(f"{rate:,.0f} MB/s" for rate in found.values())])
    return table(["tensor, there and back over HTTP", *HOSTS], rows)


def _rate(folder: str, flags: tuple[str, ...], size: int, rounds: int) -> float:
    headers, body = _binary(size)
    server = servers.prefork("echo", "Echo", "--model-dir", folder, *flags, workers=1)
    with servers.running(server) as up:
        connection = http.client.HTTPConnection("127.0.0.1", up.port, timeout=60)
        times = []
        for _ in range(rounds):
            begun = time.perf_counter()
            connection.request("POST", "/v2/models/Echo/infer", body, headers)
            answer = connection.getresponse()
            if answer.status != 200 or len(answer.read()) < size:
                raise RuntimeError(f"the echo failed with {answer.status}")
            times.append(time.perf_counter() - begun)
        connection.close()
    return 2 * size / statistics.median(times[1:]) / 1e6


def _binary(size: int) -> tuple[dict[str, str], bytes]:
    """A V2 request with one binary tensor, which asks for a binary answer."""
    tensor = {"name": "x", "shape": [1, size // 4], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"}
    return headers, text + bytes(size)

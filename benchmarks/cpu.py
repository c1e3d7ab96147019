"""CPU microseconds of all server processes a request: every target in turn, round after round."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import servers
from benchmarks.load import Sample, measure
from benchmarks.servers import Running, Server
from benchmarks.wires import SHAPES, WIRES

CONNECTIONS = 16
FLOOR = "gunicorn ASGI, bare (the floor)"
FLASK = "gunicorn sync, bare Flask"
INLINE = "Prefork, threads 0"
THREAD = "Prefork, threads 1"
SYNC = "Prefork, sync worker"
SELDON = "Seldon wrapper 1.18.2"


@dataclass(frozen=True)
class Target:
    """A row of the table: a server asked in a wire format."""

    name: str
    server: Server
    wire: str = "seldon"


@dataclass(frozen=True)
class Result:
    """Medians over the rounds; `ratio` is to the floor of the same round."""

    cpu: float
    ratio: float
    rate: float
    p99: float


def targets(peer: Path | None) -> list[Target]:
    """All rows; the Seldon wrapper's only with the environment that holds it."""
    floor = servers.gunicorn("floor", "floor_asgi:app", "-k", "asgi")
    inline = servers.prefork("inline", "Bench", "--threads", "0")
    rows = [
        Target(FLOOR, floor),
        Target(FLASK, servers.gunicorn("flask", "flask_sync:app", "-k", "sync")),
        Target(INLINE, inline),
        Target(THREAD, servers.prefork("thread", "Bench", "--threads", "1")),
        Target(SYNC, servers.prefork("sync", "Bench", "--worker-class", "sync")),
        Target(f"{INLINE}, V2 JSON", inline, "v2"),
        Target(f"{INLINE}, V2 binary", inline, "v2_binary"),
        Target(f"{FLOOR.partition(' (')[0]}, raw float32", floor, "raw"),
    ]
    return rows if peer is None else [*rows, Target(SELDON, servers.seldon("seldon", peer, "Bench"))]


def run(chosen: list[Target], sizes: list[str], rounds: int, seconds: int) -> dict[tuple[str, str], Result]:
    """Measure the targets on the sizes: {(target, size): Result}. The floor always runs along."""
    with contextlib.ExitStack() as stack:
        up = _start(stack, chosen)
        samples = [_round(up, chosen, sizes, seconds) for _ in range(rounds)]
    return {
        key: _median([each[key] for each in samples], [each[FLOOR, key[1]] for each in samples]) for key in samples[0]
    }


def _start(stack: contextlib.ExitStack, chosen: list[Target]) -> dict[str, Running]:
    """One process tree a server, however many targets share it."""
    wanted = {target.server.name: target.server for target in chosen}
    return {name: stack.enter_context(servers.running(server)) for name, server in wanted.items()}


def _round(
    up: dict[str, Running], chosen: list[Target], sizes: Iterable[str], seconds: int
) -> dict[tuple[str, str], Sample]:
    samples = {}
    for size in sizes:
        for target in chosen:
            call = WIRES[target.wire](size)
            server = up[target.server.name]
            for _ in range(4):
                status, headers, answer = server.post(call.path, call.headers, call.body)
                if status != 200:
                    raise RuntimeError(f"{target.name}: {status} {answer[:500]!r}")
                call.check(answer, headers)
            sample = samples[target.name, size] = measure(server, call, connections=CONNECTIONS, seconds=seconds)
            print(f"  {target.name:<40} {size:<7} {sample.cpu:>8.0f} us  {sample.rate:>8.0f}/s", flush=True)
    return samples


def _median(samples: list[Sample], floors: list[Sample]) -> Result:
    median = statistics.median
    return Result(
        median(sample.cpu for sample in samples),
        median(sample.cpu / floor.cpu for sample, floor in zip(samples, floors, strict=True)),
        median(sample.rate for sample in samples),
        median(sample.p99 for sample in samples),
    )


__all__ = ["SHAPES", "Result", "Target", "run", "targets"]

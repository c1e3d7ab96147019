"""`python -m benchmarks.batching`: answers a second of a model that is cheaper by the batch, with and without batching.

64 clients ask one row each, one request behind the other, in this process. A call of the model costs 10 ms and 1/15 of that
for each row more: one of 16 rows costs twice as much as one of a single row.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import NamedTuple

import numpy as np

from prefork.batch import BatchingInstance
from prefork.instance import LocalInstance
from prefork.model import Model
from prefork.payload import Kind, Payload
from prefork.repository.config import Batching

CLIENTS = 64
ROWS = 16
ONE = 0.01
GOAL = 5.0


class Cheaper:
    """Sleeps for `one` seconds, and for a fifteenth of that for each row more; counts its calls and their rows."""

    def __init__(self, one: float = ONE) -> None:
        self._one = one
        self.calls = self.rows = 0

    def predict(self, X, names):
        self.calls += 1
        self.rows += len(X)
        time.sleep(self._one * (1 + (len(X) - 1) / (ROWS - 1)))
        return X


class Result(NamedTuple):
    """Answers a second, rows in one call of the model, and the median of a request's time in milliseconds."""

    rate: float
    batch: float
    latency: float


def measure(policy: Batching | None, seconds: float, one: float = ONE, clients: int = CLIENTS) -> Result:
    """One run; without a policy one thread calls the model for one request at a time."""
    model = Cheaper(one)
    inner = LocalInstance(Model(model, "cheaper"))
    times = asyncio.run(_batched(inner, policy, seconds, clients) if policy else _alone(inner, seconds, clients))
    return Result(len(times) / seconds, model.rows / model.calls, 1000 * median(times))


async def _batched(inner: LocalInstance, policy: Batching, seconds: float, clients: int) -> list[float]:
    instance = BatchingInstance(inner, policy)

    async def ask(payload: Payload) -> None:
        async for _ in instance.infer_async(payload):
            pass

    try:
        return await _clients(ask, seconds, clients)
    finally:
        instance.close()


async def _alone(inner: LocalInstance, seconds: float, clients: int) -> list[float]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:

        async def ask(payload: Payload) -> None:
            await loop.run_in_executor(pool, lambda: list(inner.infer(payload)))

        return await _clients(ask, seconds, clients)


async def _clients(ask, seconds: float, clients: int) -> list[float]:
    end = time.perf_counter() + seconds
    times: list[float] = []

    async def client() -> None:
        while (begun := time.perf_counter()) < end:
            await ask(Payload(Kind.TENSOR, np.ones((1, 4))))
            now = time.perf_counter()
            if now <= end:
                times.append(now - begun)

    await asyncio.gather(*(client() for _ in range(clients)))
    return times


def main() -> None:
    """Print the rows, and how many times more answers the batches gave."""
    rows = {
        "no batching": None,
        "max_batch_size: 16": Batching(max_batch_size=ROWS),
        "max_batch_size: 16, max_batch_delay: 2000": Batching(max_batch_size=ROWS, max_batch_delay=2000),
        "max_batch_size: 64": Batching(max_batch_size=CLIENTS),
    }
    results = {name: measure(policy, 3.0) for name, policy in rows.items()}
    base = results["no batching"].rate
    for name, found in results.items():
        print(
            f"{name:<42} {found.rate:>7.0f}/s {found.rate / base:>6.1f} x   "
            f"{found.batch:>5.1f} rows a call   median {found.latency:>6.1f} ms"
        )
    print(f"goal: {GOAL:g} x with 16 rows")


if __name__ == "__main__":
    main()

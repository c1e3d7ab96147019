"""New versions under load: what clients see, what is left of the old ones, and how long a reload takes."""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.hosting import models
from benchmarks.hosting.served import TOKEN, Traffic, control, descendants, serving
from benchmarks.report import table
from benchmarks.servers import Running

FLAGS = {
    "none": ("--control", "none"),
    "explicit": ("--control", "explicit", "--load-model", "it"),
    "poll": ("--control", "poll", "--poll-seconds", "0.2"),
}
LIMIT = 60.0


def measure(bumps: int) -> str:
    """So many new versions in each control mode, with eight clients asking all the time."""
    rows = [_mode(mode, bumps) for mode in FLAGS]
    head = [f"{bumps} versions", "requests", "failed", "processes before", "afterwards", "zombies"]
    return table(head, rows)


def reloads(count: int) -> str:
    """How long the load call takes for a changed trivial model; its class has no `load()`."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        models.write(repository, "it", models.VERSIONED.format(number=1))
        with serving(repository, Path(folder) / "run", "--control", "explicit", "--load-model", "it") as up:
            times = []
            for number in range(2, count + 2):
                models.write(repository, "it", models.VERSIONED.format(number=number), version=number)
                begun = time.perf_counter()
                status, body = control(up, "load", "it")
                times.append(time.perf_counter() - begun)
                if status != 200:
                    raise RuntimeError(body.decode())
    median = statistics.median(times)
    return table(
        [f"{count} reloads of a trivial model", ""],
        [["median", f"{median:.3f} s (goal: under 0.5)"], ["longest", f"{max(times):.3f} s"]],
    )


def _mode(mode: str, bumps: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        models.write(repository, "it", models.VERSIONED.format(number=1))
        with serving(repository, Path(folder) / "run", *FLAGS[mode]) as up:
            before = len(descendants(up.pid))
            with Traffic(up, "/v2/models/it/infer", 8) as traffic:
                for number in range(2, bumps + 2):
                    models.write(repository, "it", models.VERSIONED.format(number=number), version=number)
                    _tell(up, mode)
                    _until(lambda number=number: any(f"[{number}" in text for text in list(traffic.answers)))  # type: ignore[misc]
            _until(lambda: len(descendants(up.pid)) == before)
            zombies = sum(_is_zombie(pid) for pid in descendants(up.pid))
            after = len(descendants(up.pid))
    print(f"  {mode}: {dict(traffic.statuses)}", flush=True)
    return [mode, f"{sum(traffic.statuses.values()):,}", str(traffic.failed), str(before), str(after), str(zombies)]


def _tell(up: Running, mode: str) -> None:
    if mode == "none":
        os.kill(up.pid, signal.SIGHUP)
    elif mode == "explicit":
        status, body = control(up, "load", "it")
        if status != 200:
            raise RuntimeError(f"{body.decode()} ({TOKEN})")


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("it did not come about in a minute")
        time.sleep(0.01)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False

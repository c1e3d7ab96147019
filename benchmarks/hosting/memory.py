"""What an unload gives back, and whether anything grows over many loads and unloads."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.hosting import models
from benchmarks.hosting.served import Holdings, control, holdings, serving, slopes
from benchmarks.report import table
from benchmarks.servers import Running

WARM = 120
"""Cycles that do not count: until then caches of a few hundred entries and the heap of the supervisor fill up."""


def measure(cycles: int) -> str:
    """One load and unload of 500 MB, then `cycles` of 20 MB."""
    with tempfile.TemporaryDirectory() as folder:
        repository, run_dir = Path(folder) / "models", Path(folder) / "run"
        models.write(repository, "big", models.BIG.format(megabytes=500))
        models.write(repository, "small", models.BIG.format(megabytes=20))
        with serving(repository, run_dir, "--control", "explicit") as up:
            back = _once(up, run_dir)
            samples = [_cycle(up, run_dir) for _ in range(WARM + cycles)][WARM:]
    return f"{back}\n{_growth(samples)}"


def _once(up: Running, run_dir: Path) -> str:
    loaded(up, "small")  # what the first load costs the server itself is not the model's
    unloaded(up, "small")
    before = holdings(up, run_dir)
    loaded(up, "big")
    held = holdings(up, run_dir)
    unloaded(up, "big")
    after = holdings(up, run_dir)
    rows = [[name, f"{held.memory / 1e6:,.1f} MB"] for name, held in _named(before, held, after)]
    return table(["memory of all processes (PSS)", ""], [*rows, ["difference", _difference(before, after)]])


def _named(before: Holdings, loaded: Holdings, after: Holdings) -> list[tuple[str, Holdings]]:
    return [("before the load", before), ("loaded, 500 MB", loaded), ("when unload has answered", after)]


def _difference(before: Holdings, after: Holdings) -> str:
    return f"{(after.memory - before.memory) / 1e6:+,.1f} MB (goal: under 5)"


def _cycle(up: Running, run_dir: Path) -> Holdings:
    loaded(up, "small")
    unloaded(up, "small")
    return holdings(up, run_dir)


def loaded(up: Running, name: str) -> None:
    """Load a model. Raises RuntimeError when that fails."""
    _done(control(up, "load", name))


def unloaded(up: Running, name: str) -> None:
    """Unload it. Raises RuntimeError when that fails."""
    _done(control(up, "unload", name))


def _done(answer: tuple[int, bytes]) -> None:
    if answer[0] != 200:
        raise RuntimeError(f"{answer[0]}: {answer[1].decode()}")


def _growth(samples: list[Holdings]) -> str:
    names = ("memory, bytes", "descriptors", "threads", "processes", "files in the run directory")
    first, last = samples[0], samples[-1]
    rows = [
        [name, f"{getattr(first, field):,}", f"{getattr(last, field):,}", f"{slope:+,.2f}"]
        for name, field, slope in zip(names, Holdings.__dataclass_fields__, slopes(samples), strict=True)
    ]
    return table([f"{len(samples)} loads and unloads", "first", "last", "growth a cycle"], rows)

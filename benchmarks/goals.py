"""What Prefork sets out to reach, held against what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import balance, cpu, report, sleep

# row, row that it is held against, size, and the most that the first may cost of the second.
COSTS = [
    (cpu.INLINE, cpu.FLOOR, "tiny", 1.6),
    (cpu.INLINE, cpu.FLOOR, "medium", 0.75),
    (cpu.INLINE, cpu.FLOOR, "large", 0.5),
    (cpu.THREAD, cpu.FLOOR, "tiny", 2.6),
    (cpu.SYNC, cpu.FLASK, "tiny", 1.25),
    (cpu.SYNC, cpu.FLASK, "medium", 1.25),
    (cpu.SYNC, cpu.FLASK, "large", 1.25),
    (cpu.INLINE, cpu.SELDON, "tiny", 1 / 5),
    (cpu.THREAD, cpu.SELDON, "tiny", 1 / 3),
    (cpu.INLINE, cpu.SELDON, "medium", 1 / 3),
    (cpu.INLINE, cpu.SELDON, "large", 1 / 3),
]
RATES = [(sleep.ASYNC, 64, 2700), (sleep.THREADS, 64, 2400)]


def costs(results: dict[tuple[str, str], cpu.Result]) -> str:
    """A row a goal on CPU; goals whose servers did not run are left out."""
    return report.table(["goal: CPU a request", "at most", "measured", "reached"], _costs(results))


def _costs(results: dict[tuple[str, str], cpu.Result]) -> Iterator[list[str]]:
    for ours, other, size, most in COSTS:
        if (ours, size) in results and (other, size) in results:
            # Both ratios are to the floor of the same round, so that their quotient is free of the machine's moods.
            measured = results[ours, size].ratio / results[other, size].ratio
            yield [f"{ours} of {other}, {size}", f"{most:.2f}", f"{measured:.2f}", _reached(yes=measured <= most)]


def rates(results: dict[tuple[str, int], float]) -> str:
    """A row a goal on concurrency."""
    rows = [
        [f"{name}, {n} connections", f"{least:,}", f"{results[name, n]:,.0f}", _reached(yes=results[name, n] >= least)]
        for name, n, least in RATES
        if (name, n) in results
    ]
    return report.table(["goal: requests/s", "at least", "measured", "reached"], rows)


def spreads(results: dict[tuple[str, int, int], balance.Spread]) -> str:
    """A row a goal on the spread of connections."""
    rows = [
        [
            f"{connections} connections on {workers} workers",
            f"{len(s.opened)}",
            f"{s.within()}",
            _reached(yes=s.within() == len(s.opened)),
        ]
        for (name, connections, workers), s in results.items()
        if name == balance.PREFORK
    ]
    return report.table(["goal: no worker above 1.25 x its share", "tries", "kept", "reached"], rows)


def _reached(*, yes: bool) -> str:
    return "yes" if yes else "**no**"

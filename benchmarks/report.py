"""The measured figures as Markdown tables in docs/performance.md, between markers that name each."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from benchmarks import balance, cpu, sleep
from benchmarks.wires import SHAPES

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PACKAGES = ("gunicorn", "gunicorn-h1c", "uvloop", "flask", "numpy", "orjson", "pysimdjson", "msgspec")


def write(name: str, text: str, page: Path | None = None) -> None:
    """Replace what stands between the markers of that name in a page; raises KeyError where it has none."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    path = page or PAGE
    head, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise KeyError(f"{path} has no markers for {name}")
    path.write_text(f"{head}{begin}{text}{end}{tail}", encoding="utf-8")


def machine(how: str) -> str:
    """One paragraph: date, processor, versions, and how the figures came about."""
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    said = subprocess.run(["wrk", "--version"], check=False, capture_output=True, text=True).stdout
    wrk = said.split()[1] if said else "?"
    return (
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d}; {_processor()}, {os.cpu_count()} cores, "
        f"Linux {platform.release()}; Python {platform.python_version()}, {packages}; wrk {wrk}. {how}\n"
    )


def _processor() -> str:
    names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return names[0] if names else platform.machine()


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table, the first column to the left and all others to the right; nothing when there is no row."""
    head, rows = list(head), list(rows)
    if not rows:
        return ""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, rule, *rows])


def costs(results: dict[tuple[str, str], cpu.Result]) -> str:
    """CPU a request, its ratio to the floor, and requests a second; a row a server."""
    sizes = [size for size in SHAPES if (cpu.FLOOR, size) in results]
    head = ["CPU us a request (x floor), requests/s", *(f"{size} {'x'.join(map(str, SHAPES[size]))}" for size in sizes)]
    rows = []
    for name in dict.fromkeys(name for name, _ in results):
        found = [results[name, size] for size in sizes]
        rows.append([name, *(f"{r.cpu:,.0f} ({r.ratio:.2f}), {r.rate:,.0f}" for r in found)])
    return table(head, rows)


def sleeps(results: dict[tuple[str, int], float]) -> str:
    """Requests a second of those possible; a row a server."""
    possible = {n: round(n / sleep.PAUSE) for n in sleep.CONNECTIONS}
    head = ["requests/s", *(f"{n} connections, {most:,} possible" for n, most in possible.items())]
    names = dict.fromkeys(name for name, _ in results)
    return table(head, [[name, *(f"{results[name, n]:,.0f}" for n in possible)] for name in names])


def spreads(results: dict[tuple[str, int, int], balance.Spread]) -> str:
    """The busiest worker's multiple of its fair share, at worst over all tries; a row a server."""
    head = ["worst at opening / as they come and go (tries within 1.25)"]
    head += [f"{connections} on {workers}" for connections, workers in balance.SETS]
    rows = []
    for name in dict.fromkeys(name for name, _, _ in results):
        found = [results[name, connections, workers] for connections, workers in balance.SETS]
        rows.append(
            [name, *(f"{max(s.opened):.2f} / {max(s.churned):.2f} ({s.within()} of {len(s.opened)})" for s in found)]
        )
    return table(head, rows)

"""`python -m benchmarks [cpu] [sleep] [balance]`: measure, print the tables, and write them into docs/performance.md."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from benchmarks import balance, cpu, goals, peer, plot, report, sleep
from benchmarks.wires import SHAPES

PARTS = ("cpu", "sleep", "balance")


def arguments(words: list[str] | None) -> argparse.Namespace:
    """What to run; all of it by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (default all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds over all servers; medians are printed")
    parser.add_argument("--seconds", type=int, default=5, help="length of one run")
    parser.add_argument("--tries", type=int, default=balance.TRIES, help="tries of the balance part")
    parser.add_argument("--sizes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose name holds one of these; writes no page")
    parser.add_argument(
        "--seldon",
        nargs="?",
        type=Path,
        const=peer.default_folder(),
        metavar="VENV",
        help="run the real Seldon wrapper too, from this environment; made if absent (default in the cache folder)",
    )
    chosen = parser.parse_args(words)
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return chosen


def main(words: list[str] | None = None) -> None:
    """Run the parts that were asked for."""
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed; on Debian: apt-get install wrk")
    chosen = arguments(words)
    venv = chosen.seldon and peer.environment(chosen.seldon.absolute())
    for part in PARTS:
        if part in (chosen.parts or PARTS):
            print(f"{part}:", flush=True)
            text = {"cpu": _cpu, "sleep": _sleep, "balance": _balance}[part](chosen, venv)
            print(f"\n{text}", flush=True)
            if not chosen.only:
                report.write(part, text)


def _wanted(name: str, chosen: argparse.Namespace) -> bool:
    return not chosen.only or any(text.lower() in name.lower() for text in chosen.only)


def _cpu(chosen: argparse.Namespace, venv: Path | None) -> str:
    rows = [row for row in cpu.targets(venv) if row.name == cpu.FLOOR or _wanted(row.name, chosen)]
    results = cpu.run(rows, chosen.sizes, chosen.rounds, chosen.seconds)
    if not chosen.only:
        plot.write(results)
    how = (
        f"Medians of {chosen.rounds} rounds of {chosen.seconds} s; 2 workers, {cpu.CONNECTIONS} keep-alive connections."
    )
    return f"{report.machine(how)}\n{report.costs(results)}\n{goals.costs(results)}"


def _sleep(chosen: argparse.Namespace, venv: Path | None) -> str:
    rows = {name: row for name, row in sleep.targets(venv).items() if _wanted(name, chosen)}
    results = sleep.run(rows, chosen.rounds, chosen.seconds)
    return f"{report.sleeps(results)}\n{goals.rates(results)}"


def _balance(chosen: argparse.Namespace, _: Path | None) -> str:
    rows = {name: row for name, row in balance.targets().items() if _wanted(name, chosen)}
    results = balance.run(rows, chosen.tries)
    return f"{report.spreads(results)}\n{goals.spreads(results)}"


if __name__ == "__main__":
    main()

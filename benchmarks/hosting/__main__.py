"""`python -m benchmarks.hosting [memory] [swaps] ...`: measure, print the tables, write them into docs/hosting.md."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import hop, report
from benchmarks.hosting import cost, crashes, frameworks, memory, queueing, swaps

PAGE = Path(__file__).parents[2] / "docs" / "hosting.md"

PARTS: dict[str, Callable[[], str]] = {
    "memory": lambda: memory.measure(200),
    "swaps": lambda: swaps.measure(30),
    "reloads": lambda: swaps.reloads(20),
    "cost": lambda: f"{cost.measure(7, 3)}\n{hop.crossing()}\n{cost.throughput(30)}",
    "queueing": lambda: queueing.measure(5, 8.0),
    "batching": lambda: queueing.batching(2000),
    "crashes": lambda: crashes.measure(100),
    "frameworks": frameworks.measure,
}
OPTIONAL = {"frameworks"}
"""What needs more than Prefork's own requirements, and is measured only when it is asked for."""


def main() -> None:
    """Run the parts that were asked for, by default all that need nothing else."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosting", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    for part in parser.parse_args().parts or [each for each in PARTS if each not in OPTIONAL]:
        print(f"{part}:", flush=True)
        text = PARTS[part]()
        print(f"\n{text}", flush=True)
        report.write(part, text, PAGE)


if __name__ == "__main__":
    main()

"""The memory of the server's processes, as Linux tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from prefork.metrics.ledger import Ledger

_FIELD = re.compile(rb"^(Rss|Pss): +(\d+) kB", re.MULTILINE)


def memory(ledger: Ledger) -> Iterator[tuple[str, int, int]]:
    """The name, and the resident and the proportional bytes, of each process that is there and can be looked at."""
    for account in ledger.accounts:
        pid = account.owner
        if pid <= 0:
            continue
        with suppress(OSError):
            yield f"worker-{account.number}" if account.number else "arbiter", *_held(pid)


def instances(run_dir: str) -> dict[tuple[str, str], list[int]]:
    """Of each model and version that has processes: their number, and their resident and proportional bytes together.

    run_dir: where the supervisor keeps `instances/<pid>`, whose second line is `model/version`.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for record in Path(run_dir, "instances").glob("*"):
        with suppress(OSError, IndexError, ValueError):
            model, slash, version = record.read_text().splitlines()[1].rpartition("/")
            if slash:
                resident, proportional = _held(int(record.name))
                before = found.get((model, version), [0, 0, 0])
                found[model, version] = [before[0] + 1, before[1] + resident, before[2] + proportional]
    return found


def _held(pid: int) -> tuple[int, int]:
    """Resident and proportional bytes. Raises OSError where there is no such process."""
    found = dict(_FIELD.findall(Path(f"/proc/{pid}/smaps_rollup").read_bytes()))
    return int(found.get(b"Rss", 0)) << 10, int(found.get(b"Pss", 0)) << 10

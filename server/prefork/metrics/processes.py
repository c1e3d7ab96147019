"""The memory of the server's processes, as Linux tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from prefork.metrics.ledger import Ledger

_FIELD = re.compile(rb"^(Rss|Pss): +(\d+) kB", re.MULTILINE)


def memory(ledger: Ledger) -> Iterator[tuple[str, int, int]]:
    """The name, and the resident and the proportional bytes, of each process that is there and can be looked at."""
    for account in ledger.accounts:
        pid = account.owner
        if pid <= 0:
            continue
        try:
            found = dict(_FIELD.findall(Path(f"/proc/{pid}/smaps_rollup").read_bytes()))
        except OSError:
            continue
        name = f"worker-{account.number}" if account.number else "arbiter"
        yield name, int(found.get(b"Rss", 0)) << 10, int(found.get(b"Pss", 0)) << 10

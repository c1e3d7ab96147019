"""What is counted of each model: requests, rows, executions, and the time that they waited and computed.

All of it only where somebody has measured the cost of an answer, which a batch and a model's own process do. Of a model in the
worker itself the stages of its requests say how long they took; here is what of V2's statistics those do not say.
"""

from __future__ import annotations

import time
from bisect import bisect_left

from prefork.metrics import families, series
from prefork.metrics.families import BATCHES
from prefork.metrics.ledger import Account
from prefork.payload import Cost

_NANO = 1e-9
_MILLI = 1e3

EXACT = 128
"""Rows up to which executions are told apart by their number; of more it is the next power of two, that these do not fill the account."""
_HIGHEST = 40


def sizes() -> list[int]:
    """Every number of rows that executions are counted under."""
    return [*range(EXACT + 1), *(1 << power for power in range(EXACT.bit_length(), _HIGHEST))]


def _size(rows: int) -> int:
    return rows if rows <= EXACT else 1 << min((rows - 1).bit_length(), _HIGHEST - 1)


class ModelCounts:
    """One version's, in one worker."""

    def __init__(self, account: Account, name: str, version: str) -> None:
        self._account = account
        self._cells = account.cells
        self._name = name, version
        self._sizes: dict[int, int] = {}
        self._recent = self._own(families.RECENT)
        self._failed = self._own(families.FAILED_REQUESTS)

    def executed(self, rows: int, nanoseconds: int) -> None:
        """The model was called with so many rows."""
        at = self._sizes.get(rows) or self._place(rows)
        cells = self._cells
        with self._account.lock:
            cells[at] += 1.0
            cells[at + 1] += rows
            cells[at + 2] += nanoseconds
        self._cells[self._recent] = time.time() * _MILLI

    def failed(self, seconds: float) -> None:
        """A request was not answered, after so long."""
        with self._account.lock:
            self._cells[self._failed] += 1.0
            self._cells[self._failed + 1] += seconds / _NANO
        self._cells[self._recent] = time.time() * _MILLI

    def _own(self, family: families.Family, *more: str) -> int:
        return series.own(self._account, family, *self._name, *more)

    def _place(self, rows: int) -> int:
        at = self._own(families.EXECUTED, str(_size(rows)))
        if len(self._sizes) < EXACT:
            self._sizes[rows] = at
        return at


class MeasuredCounts(ModelCounts):
    """One version's whose answers tell their cost."""

    def __init__(self, account: Account, name: str, version: str) -> None:
        super().__init__(account, name, version)
        self._success = self._own(families.MODEL_REQUESTS, "success")
        self._failure = self._own(families.MODEL_REQUESTS, "failure")
        self._rows = self._own(families.MODEL_ROWS)
        self._executions = self._own(families.MODEL_EXECUTIONS)
        self._queue = self._own(families.MODEL_SECONDS, "queue")
        self._compute = self._own(families.MODEL_SECONDS, "compute")
        self._batches = self._own(families.BATCH_ROWS)

    def answered(self, cost: Cost) -> None:
        """A request was answered."""
        cells = self._cells
        with self._account.lock:
            cells[self._success] += 1.0
            cells[self._queue] += cost.queue_ns * _NANO
            cells[self._compute] += cost.compute_ns * _NANO
            if cost.lead:
                cells[self._executions] += 1.0
                cells[self._rows] += cost.batch
                cells[self._batches + bisect_left(BATCHES, cost.batch)] += 1.0
                cells[self._batches + len(BATCHES) + 1] += cost.batch
        if cost.lead:
            self.executed(cost.batch, cost.compute_ns)

    def failed(self, seconds: float) -> None:
        """As for every model."""
        with self._account.lock:
            self._cells[self._failure] += 1.0
        super().failed(seconds)


class Models:
    """Those that a worker has asked, whose answers tell their cost."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._counts: dict[tuple[str, str], MeasuredCounts] = {}

    def of(self, name: str, version: str) -> MeasuredCounts:
        """One version's counts."""
        found = self._counts.get((name, version))
        if found is None:
            found = self._counts[name, version] = MeasuredCounts(self._account, name, version)
        return found

    def plain(self, name: str, version: str) -> ModelCounts:
        """The counts of one whose answers do not."""
        return ModelCounts(self._account, name, version)

"""What is counted of each model: requests, rows, executions, and the time that they waited and computed.

Counted only where somebody has measured the cost of an answer, which a batch and a model's own process do; of a model in the
worker itself the stages of its requests say the same.
"""

from __future__ import annotations

from bisect import bisect_left

from prefork.metrics import families, series
from prefork.metrics.families import BATCHES
from prefork.metrics.ledger import Account
from prefork.payload import Cost

_NANO = 1e-9


class ModelCounts:
    """One version's, in one worker."""

    def __init__(self, account: Account, name: str, version: str) -> None:
        self._account = account
        self._cells = account.cells

        def own(family: families.Family, *more: str) -> int:
            return series.own(account, family, name, version, *more)

        self._success = own(families.MODEL_REQUESTS, "success")
        self._failure = own(families.MODEL_REQUESTS, "failure")
        self._rows = own(families.MODEL_ROWS)
        self._executions = own(families.MODEL_EXECUTIONS)
        self._queue = own(families.MODEL_SECONDS, "queue")
        self._compute = own(families.MODEL_SECONDS, "compute")
        self._batches = own(families.BATCH_ROWS)

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

    def failed(self) -> None:
        """A request was not answered."""
        with self._account.lock:
            self._cells[self._failure] += 1.0


class Models:
    """Those that a worker has asked."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._counts: dict[tuple[str, str], ModelCounts] = {}

    def of(self, name: str, version: str) -> ModelCounts:
        """One version's counts."""
        found = self._counts.get((name, version))
        if found is None:
            found = self._counts[name, version] = ModelCounts(self._account, name, version)
        return found

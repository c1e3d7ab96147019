"""What Triton's statistics tell of a model, read out of the accounts of all workers."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from prefork.metrics import families, series
from prefork.metrics.families import STAGES, Family
from prefork.metrics.ledger import Ledger
from prefork.metrics.models import sizes

_NANO = 1e9


class Spent(msgspec.Struct):
    """How many, and how long in all of them, in nanoseconds."""

    count: int = 0
    ns: int = 0


class InferenceStatistics(msgspec.Struct):
    """Of requests that were answered and that failed, and where the time of those went."""

    success: Spent = msgspec.field(default_factory=Spent)
    fail: Spent = msgspec.field(default_factory=Spent)
    queue: Spent = msgspec.field(default_factory=Spent)
    compute_input: Spent = msgspec.field(default_factory=Spent)
    compute_infer: Spent = msgspec.field(default_factory=Spent)
    compute_output: Spent = msgspec.field(default_factory=Spent)
    cache_hit: Spent = msgspec.field(default_factory=Spent)
    cache_miss: Spent = msgspec.field(default_factory=Spent)


class BatchStatistics(msgspec.Struct):
    """Executions of `batch_size` rows. How long reading and writing them took is not known apart."""

    batch_size: int
    compute_input: Spent
    compute_infer: Spent
    compute_output: Spent


class Statistics(msgspec.Struct):
    """Of one version of a model. inference_count: rows; execution_count: calls of the model; last_inference: Unix milliseconds."""

    inference_count: int = 0
    execution_count: int = 0
    last_inference: int = 0
    inference_stats: InferenceStatistics = msgspec.field(default_factory=InferenceStatistics)
    batch_stats: list[BatchStatistics] = msgspec.field(default_factory=list)


class Totals:
    """Every series of all accounts, looked through once."""

    def __init__(self, ledger: Ledger) -> None:
        self._found: dict[bytes, list[list[float]]] = defaultdict(list)
        for account in ledger.accounts:
            for raw, at, width in account.entries():
                self._found[raw].append(list(account.cells[at : at + width]))

    def of(self, family: Family, *labels: str) -> list[float]:
        """A series' numbers, added up."""
        return [sum(column) for column in zip(*self._all(family, labels), strict=True)] or [0.0] * family.width

    def latest(self, family: Family, *labels: str) -> float:
        """A series' first number, where it is highest."""
        return max((numbers[0] for numbers in self._all(family, labels)), default=0.0)

    def _all(self, family: Family, labels: tuple[str, ...]) -> list[list[float]]:
        return [each for each in self._found.get(series.key(family, *labels), ()) if len(each) == family.width]


def of_model(totals: Totals, name: str, version: str) -> Statistics:
    """Of a model that batches or has processes of its own."""
    count = int(totals.of(families.MODEL_REQUESTS, name, version, "success")[0])
    queue, compute = (
        round(totals.of(families.MODEL_SECONDS, name, version, stage)[0] * _NANO) for stage in ("queue", "compute")
    )
    found = InferenceStatistics(
        success=Spent(count, queue + compute),
        queue=Spent(count, queue),
        compute_infer=Spent(count, compute),
    )
    return _executed(totals, name, version, found)


def of_stages(totals: Totals, name: str, version: str) -> Statistics:
    """Of the only model of the workers themselves: each request is an execution."""
    spent = {stage: _stage(totals, stage) for stage in STAGES}
    whole = sum(each.ns for stage, each in spent.items() if stage != "read")
    found = InferenceStatistics(
        success=Spent(spent["encode"].count, whole),
        queue=spent["queue"],
        compute_input=spent["decode"],
        compute_infer=spent["predict"],
        compute_output=spent["encode"],
    )
    return _executed(totals, name, version, found)


def _executed(totals: Totals, name: str, version: str, found: InferenceStatistics) -> Statistics:
    """With what is counted of every model: its failures, and its executions by their rows."""
    found.fail = Spent(*map(int, totals.of(families.FAILED_REQUESTS, name, version)))
    batches = [(size, totals.of(families.EXECUTED, name, version, str(size))) for size in sizes()]
    return Statistics(
        int(sum(rows for _, (_, rows, _) in batches)),
        int(sum(count for _, (count, _, _) in batches)),
        int(totals.latest(families.RECENT, name, version)),
        found,
        [
            BatchStatistics(size, Spent(), Spent(int(count), int(ns)), Spent())
            for size, (count, _, ns) in batches
            if count
        ],
    )


def _stage(totals: Totals, stage: str) -> Spent:
    *counts, seconds = totals.of(families.STAGE, stage)
    return Spent(int(sum(counts)), round(seconds * _NANO))

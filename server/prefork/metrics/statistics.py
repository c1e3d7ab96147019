"""What Triton's statistics tell of a model, read out of the accounts of all workers."""

from __future__ import annotations

import msgspec

from prefork.metrics import families, series
from prefork.metrics.families import BATCHES, STAGES, Family
from prefork.metrics.ledger import Ledger

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
    """Executions of up to `batch_size` rows, and of more than the size before it in the list."""

    batch_size: int
    compute_input: Spent
    compute_infer: Spent
    compute_output: Spent


class Statistics(msgspec.Struct):
    """Of one version of a model. inference_count: rows; execution_count: calls of the model."""

    inference_count: int = 0
    execution_count: int = 0
    inference_stats: InferenceStatistics = msgspec.field(default_factory=InferenceStatistics)
    batch_stats: list[BatchStatistics] = msgspec.field(default_factory=list)


def of_model(ledger: Ledger, name: str, version: str) -> Statistics:
    """Of a model that batches or has processes of its own."""
    counted = {
        outcome: int(_sum(ledger, families.MODEL_REQUESTS, name, version, outcome)[0])
        for outcome in ("success", "failure")
    }
    queue, compute = (
        int(_sum(ledger, families.MODEL_SECONDS, name, version, stage)[0] * _NANO) for stage in ("queue", "compute")
    )
    count = counted["success"]
    found = InferenceStatistics(
        success=Spent(count, queue + compute),
        fail=Spent(counted["failure"]),
        queue=Spent(count, queue),
        compute_infer=Spent(count, compute),
    )
    return Statistics(
        int(_sum(ledger, families.MODEL_ROWS, name, version)[0]),
        int(_sum(ledger, families.MODEL_EXECUTIONS, name, version)[0]),
        found,
        _batches(_sum(ledger, families.BATCH_ROWS, name, version)),
    )


def of_stages(ledger: Ledger) -> Statistics:
    """Of the only model of the workers themselves: each request is an execution."""
    spent = {stage: _stage(ledger, stage) for stage in STAGES}
    answered = spent["encode"].count
    errors = sum(_sum_of_all(ledger, families.ERRORS))
    whole = sum(each.ns for stage, each in spent.items() if stage != "read")
    found = InferenceStatistics(
        success=Spent(answered, whole),
        fail=Spent(int(errors)),
        queue=spent["queue"],
        compute_input=spent["decode"],
        compute_infer=spent["predict"],
        compute_output=spent["encode"],
    )
    return Statistics(spent["predict"].count, spent["predict"].count, found)


def _stage(ledger: Ledger, stage: str) -> Spent:
    *counts, seconds = _sum(ledger, families.STAGE, stage)
    return Spent(int(sum(counts)), int(seconds * _NANO))


def _batches(values: list[float]) -> list[BatchStatistics]:
    return [
        BatchStatistics(int(bound), Spent(), Spent(int(count)), Spent())
        for bound, count in zip(BATCHES, values, strict=False)
        if count
    ]


def _sum(ledger: Ledger, family: Family, *labels: str) -> list[float]:
    wanted = series.key(family, *labels)
    total = [0.0] * family.width
    for account in ledger.accounts:
        for raw, at, width in account.entries():
            if raw == wanted and width == family.width:
                total = [a + b for a, b in zip(total, account.cells[at : at + width], strict=True)]
    return total


def _sum_of_all(ledger: Ledger, family: Family) -> list[float]:
    found = []
    for account in ledger.accounts:
        for raw, at, _ in account.entries():
            meaning = series.meaning(raw)
            if meaning is not None and meaning[1] is family:
                found.append(account.cells[at])
    return found

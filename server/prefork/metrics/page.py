"""The metrics page: every account of the ledger added up, in the text format that the scraper accepts best.

prometheus_client writes the text. It is imported with the first scrape: most workers of most servers see none.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import prefork
from prefork.metrics import exemplars, families, processes, series
from prefork.metrics.exemplars import Exemplar
from prefork.metrics.families import Family
from prefork.metrics.ledger import Account, Ledger

Labels = Mapping[str, str]
Found = dict[tuple[str, str], tuple[Family, list[tuple[Labels, list[float]]]]]
Traced = Mapping[tuple[str, tuple[tuple[str, str], ...]], list[Exemplar | None]]

_OPENMETRICS = "application/openmetrics-text"


def page(ledger: Ledger, labels: Labels, accept: str = "", *, with_worker_id: bool = False) -> tuple[str, bytes]:
    """The content type and the body.

    labels: of each of the class's series, beside its tags. accept: the request's header. with_worker_id: tell the class's
    series of different workers apart by the place of the worker.
    """
    from prometheus_client import exposition

    try:
        write, content_type = exposition.choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        write, content_type = exposition.choose_encoder("")
    found = _merged(ledger, labels, with_worker_id=with_worker_id)
    strict = content_type.startswith(_OPENMETRICS)
    return content_type, write(_Page(found, exemplars.newest(ledger) if strict else {}, strict=strict))


class _Page:
    """What prometheus_client takes for a registry. strict: OpenMetrics, which has rules for names and values."""

    def __init__(self, found: Found, traced: Traced, *, strict: bool) -> None:
        self._found = found
        self._traced = traced
        self._strict = strict

    def collect(self) -> Iterator[Any]:
        """Families of one name and different kinds cannot stand on one page: the first one does."""
        taken: set[str] = set()
        for _, (family, rows) in sorted(self._found.items(), key=_rank):
            names = _names(family, strict=self._strict)
            if taken.isdisjoint(names):
                taken |= names
                yield _metric(family, rows, self._traced, strict=self._strict)


def _rank(item: tuple[tuple[str, str], tuple[Family, Any]]) -> tuple[int, tuple[str, str]]:
    order = list(families.FAMILIES)
    (name, origin), (family, _) = item
    return (order.index(name) if origin == "own" else len(order)), (family.name, origin)


def _names(family: Family, *, strict: bool) -> set[str]:
    name = family.name
    if family.kind == "counter":
        return {f"{name}_total", name} if strict else {f"{name}_total"}
    return {name, f"{name}_bucket", f"{name}_count", f"{name}_sum"} if family.kind == "histogram" else {name}


def _metric(family: Family, rows: Iterable[tuple[Labels, list[float]]], traced: Traced, *, strict: bool) -> Any:
    from prometheus_client import Metric

    rows = sorted(rows, key=lambda row: sorted(row[0].items()))
    name: str = family.name
    kind: str = family.kind
    if strict and kind == "counter" and any(not values[0] >= 0 for _, values in rows):
        name, kind = f"{name}_total", "unknown"  # OpenMetrics has no counter that falls; a reward may be negative
    metric = Metric(name, family.text, kind)
    for labels, values in rows:
        beside = traced.get((family.name, tuple(labels.items())), ())
        for (suffix, more, value), exemplar in zip_longest(_samples(family, values), map(_exemplar, beside)):
            metric.add_sample(family.name + suffix, {**labels, **more}, value, exemplar=exemplar)
    return metric


def _exemplar(seen: Exemplar | None) -> Any:
    from prometheus_client.samples import Exemplar

    return None if seen is None else Exemplar({"trace_id": seen[2]}, seen[1], seen[0])


def _samples(family: Family, values: list[float]) -> Iterator[tuple[str, Labels, float]]:
    if family.kind != "histogram":
        yield "_total" if family.kind == "counter" else "", {}, values[0]
        return
    total = 0.0
    for bound, count in zip((*map(repr, family.buckets), "+Inf"), values[:-1], strict=True):
        total += count
        yield "_bucket", {"le": bound}, total
    yield "_count", {}, total
    yield "_sum", {}, values[-1]


def _merged(ledger: Ledger, labels: Labels, *, with_worker_id: bool) -> Found:
    sums: dict[tuple[bytes, int], list[float]] = {}
    for account in ledger.accounts:
        for raw, values in _values(account):
            place = (raw, account.number if with_worker_id and not raw.startswith(series.OWN) else 0)
            sums[place] = _add(raw, sums[place], values) if place in sums else values
    found: Found = {}
    for (raw, worker), values in sums.items():
        key, family = series.meaning(raw) or _NOTHING
        own = key.origin == "own"
        more = {"worker_id": str(worker)} if worker else {}
        named = dict(key.labels) if own else {**labels, **dict(key.labels), **more}
        found.setdefault((family.name, key.origin), (family, []))[1].append((named, values))
    for family, rows in _of_now(ledger):
        found[family.name, "own"] = (family, rows)
    return found


_NOTHING = series.Key("", ""), Family("", "gauge", "")


def _values(account: Account) -> Iterator[tuple[bytes, list[float]]]:
    """Each series of an account; of one whose owner has gone, no gauges but those that tell what was last."""
    is_live = account.owner > 0
    for raw, at, width in account.entries():
        meaning = series.meaning(raw)
        if meaning is None or meaning[1].width != width:
            continue
        family = meaning[1]
        if is_live or family.kind != "gauge" or family.mode == "last":
            yield raw, list(account.cells[at : at + width])


def _add(raw: bytes, one: list[float], other: list[float]) -> list[float]:
    _, family = series.meaning(raw) or _NOTHING
    if family.kind == "gauge" and family.mode == "last":
        return max(one, other, key=lambda pair: pair[1])
    if family.kind == "gauge" and family.mode == "max":
        return [max(one[0], other[0])]
    return [a + b for a, b in zip(one, other, strict=True)]


def _of_now(ledger: Ledger) -> Iterator[tuple[Family, list[tuple[Labels, list[float]]]]]:
    """What is looked up when somebody asks."""
    build = {"version": prefork.__version__, "python": platform.python_version()}
    yield families.BUILD, [(build, [1.0])]
    memory = list(processes.memory(ledger))
    yield families.RESIDENT, [({"process": name}, [float(resident)]) for name, resident, _ in memory]
    yield families.PROPORTIONAL, [({"process": name}, [float(shared)]) for name, _, shared in memory if shared]
    serving = processes.instances(ledger.run_dir) if ledger.run_dir else {}
    for at, family in enumerate((families.INSTANCES, families.INSTANCES_RESIDENT, families.INSTANCES_PROPORTIONAL)):
        yield (
            family,
            [({"model": model, "version": number}, [float(held[at])]) for (model, number), held in serving.items()],
        )

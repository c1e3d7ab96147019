"""V2's statistics of models. Source: Triton's statistics extension."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from prefork.catalogue import Served
from prefork.endpoints.inference import served
from prefork.endpoints.site import Site
from prefork.http import Request, Response
from prefork.metrics import processes
from prefork.metrics.ledger import Ledger
from prefork.metrics.statistics import Statistics, Totals, of_model, of_stages
from prefork.protocols import json


class MemoryUsage(msgspec.Struct):
    """Bytes of one kind of memory that the model has now."""

    type: str
    id: int
    byte_size: int


class ModelStatistic(Statistics, kw_only=True):
    """One version of a model. memory_usage: its processes', what they share divided by the sharers; of a model in them, the HTTP workers'."""

    name: str
    version: str
    response_stats: dict[str, int] = msgspec.field(default_factory=dict)
    memory_usage: list[MemoryUsage] = msgspec.field(default_factory=list)


class ModelStatistics(msgspec.Struct):
    """The body."""

    model_stats: list[ModelStatistic]


def model_statistics(site: Site, request: Request) -> Response:
    """How often a model was asked, and where the time went."""
    return _body(site, [served(site, request)])


def all_statistics(site: Site, request: Request) -> Response:
    """The same of every model that is ready."""
    catalogue = site.catalogue
    return _body(
        site, [catalogue.find(name, version) for name in catalogue.names() for version in catalogue.versions(name)]
    )


def _body(site: Site, models: list[Served]) -> Response:
    totals, memory = Totals(site.meter.ledger), _memory(site.meter.ledger)
    found = ModelStatistics([_of(totals, memory, each) for each in models])
    return Response(json.encode(msgspec.to_builtins(found)))


def _of(totals: Totals, memory: Callable[[str, str], int], model: Served) -> ModelStatistic:
    name, version = model.spec.name, model.spec.version
    said = (of_model if model.is_counted else of_stages)(totals, name, version)
    usage = [MemoryUsage("CPU", 0, held)] if (held := memory(name, version)) else []
    return ModelStatistic(name=name, version=version, memory_usage=usage, **msgspec.structs.asdict(said))


def _memory(ledger: Ledger) -> Callable[[str, str], int]:
    """What tells the bytes of a version."""
    if ledger.run_dir:
        held = processes.instances(ledger.run_dir)
        return lambda name, version: held.get((name, version), (0, 0, 0))[2]
    workers = sum(shared for name, _, shared in processes.memory(ledger) if name != "arbiter")
    return lambda _name, _version: workers

"""V2's statistics of models. Source: Triton's statistics extension."""

from __future__ import annotations

import msgspec

from prefork.catalogue import Served
from prefork.endpoints.inference import served
from prefork.endpoints.site import Site
from prefork.http import Request, Response
from prefork.metrics.statistics import Statistics, of_model, of_stages
from prefork.protocols import json


class ModelStatistic(Statistics, kw_only=True):
    """One version of a model. last_inference is not kept; memory is in the metrics."""

    name: str
    version: str
    last_inference: int = 0
    response_stats: dict[str, int] = msgspec.field(default_factory=dict)
    memory_usage: list[int] = msgspec.field(default_factory=list)


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
    found = ModelStatistics([_of(site, each) for each in models])
    return Response(json.encode(msgspec.to_builtins(found)))


def _of(site: Site, model: Served) -> ModelStatistic:
    spec = model.spec
    ledger = site.meter.ledger
    said = of_model(ledger, spec.name, spec.version) if model.is_counted else of_stages(ledger)
    return ModelStatistic(name=spec.name, version=spec.version, **msgspec.structs.asdict(said))

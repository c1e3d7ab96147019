"""The body of /ready: which model, in which worker, since when, and why not."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from prefork.catalogue import Catalogue
from prefork.crew import Colleague, Crew
from prefork.http import Response
from prefork.protocols import json


class WorkerState(msgspec.Struct, omit_defaults=True):
    """One worker: `loading`, `ready` or `leaving`, since when (UTC), and why it is to be replaced, where it is."""

    pid: int
    state: str
    since: str
    replaced_for: str = ""


class ModelState(msgspec.Struct):
    """One model: ready when at least one worker has loaded it."""

    name: str
    version: str
    ready: bool
    workers: list[WorkerState]


class Readiness(msgspec.Struct, omit_defaults=True):
    """Whether requests should be sent here; `reason` says why not, `trouble` why the last replacement could not load."""

    ready: bool
    models: list[ModelState]
    reason: str = ""
    trouble: str = ""


def encode(catalogue: Catalogue, crew: Crew, *, is_ready: bool) -> Response:
    """200 or 503, with the body."""
    workers = [_worker(each) for each in crew.colleagues()]
    is_served = any(each.state == "ready" for each in workers)
    models = [
        ModelState(name, version, ready=ready and is_served, workers=workers)
        for name, version, ready in catalogue.states()
    ]
    reason = "" if is_ready else "the server has been told to stop" if crew.is_draining else "the model is not loaded"
    body = msgspec.to_builtins(Readiness(is_ready, models, reason, crew.trouble))
    return Response(json.encode(body), status=200 if is_ready else 503)


def _worker(each: Colleague) -> WorkerState:
    since = datetime.fromtimestamp(each.since, UTC).isoformat(timespec="seconds")
    return WorkerState(each.pid, each.state, since, each.due)

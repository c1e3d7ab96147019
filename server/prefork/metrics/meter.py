"""What a worker records of its requests and its model.

The ASGI front calls this on its event loop only, and needs no lock; `enter_shared` and `leave_shared` are for fronts of
several threads.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager

from prefork import errors
from prefork.http import Request
from prefork.metrics import exemplars, families, page, series
from prefork.metrics.custom import Custom, labels
from prefork.metrics.families import LATENCIES, STAGES
from prefork.metrics.ledger import Account, Ledger
from prefork.metrics.models import ModelCounts, Models
from prefork.settings import Settings

clock = time.perf_counter

_SUM = len(LATENCIES) + 1
_DECODED = 3
"""Times of a request that has not come to the model yet."""
_SERVERS = 500
"""The first status that is not the client's fault."""
_OTHER = ("other", "other")
_GONE = "gone"
"""In the place of a status: the client had gone before there was an answer."""


class Meter:
    """A worker's meter. It begins the account, and says that it is this process's.

    name, version: the model's. custom: for the class's own metrics. models: for what is counted of each model whose answers
    tell their cost. plain: for the same of the only model, where they do not.
    """

    def __init__(self, account: Account, settings: Settings, name: str, version: str) -> None:
        account.begin()
        self.models = Models(account)
        self.custom = Custom(account, counts_feedback=settings.count_feedback)
        self._lock = threading.Lock()
        self._account = account
        self._labels = labels(settings)
        self.plain: ModelCounts | None = None
        self._with_worker_id = settings.metrics_worker_id
        self._cells = account.cells
        self._exemplars = exemplars.Exemplars(account, families.DURATION) if settings.tracing else None
        self._durations: dict[str, int] = {}
        self._counts: dict[tuple[str, str, int], int] = {}
        self._stages = [series.own(account, families.STAGE, stage) for stage in STAGES]
        self._in_flight = series.own(account, families.IN_FLIGHT)
        self._waiting = series.own(account, families.WAITING)
        self._loading = series.own(account, families.MODELS, name, version, "LOADING")
        self._ready = series.own(account, families.MODELS, name, version, "READY")
        self._load = series.own(account, families.LOAD, name, version)
        for at in (self._in_flight, self._waiting, self._loading, self._ready, self._load):
            self._cells[at] = 0.0
        account.owner = os.getpid()

    @classmethod
    def private(cls) -> Meter:
        """A meter of a process without an arbiter."""
        return cls(Ledger(1).take(), Settings(), "", "")

    def enter(self) -> None:
        """A request begins."""
        self._cells[self._in_flight] += 1.0

    def leave(self, request: Request) -> None:
        """A request is over; one without a status had no client any more."""
        cells = self._cells
        cells[self._in_flight] -= 1.0
        route, times = request.route, request.times
        path, protocol = _OTHER if route is None else (route.path, route.protocol)
        what = (path, protocol, request.status // 100)
        cells[self._counts.get(what) or self._count(what)] += 1.0
        duration = self._durations.get(path) or self._duration(path)
        before = times[0]
        taken = clock() - before
        cells[duration + bisect_left(LATENCIES, taken)] += 1.0
        cells[duration + _SUM] += taken
        if self._exemplars is not None and exemplars.HEADER in request.headers:
            self._exemplars.note(path, taken, request.headers[exemplars.HEADER])
        if route is not None and route.calls_model:
            for at, now in zip(self._stages, times[1:]):  # noqa: B905 - a request may have failed at any stage
                taken = now - before
                cells[at + bisect_left(LATENCIES, taken)] += 1.0
                cells[at + _SUM] += taken
                before = now
            plain = self.plain
            if plain is not None and request.failure and (len(times) > _DECODED or request.status >= _SERVERS):
                plain.failed(clock() - times[0])
        if request.failure:
            cells[series.own(self._account, families.ERRORS, request.failure)] += 1.0

    def enter_shared(self) -> None:
        """As `enter`, where several threads serve."""
        with self._lock:
            self.enter()

    def leave_shared(self, request: Request) -> None:
        """As `leave`, where several threads serve."""
        with self._lock:
            self.leave(request)

    def waiting(self, count: int) -> None:
        """So many requests wait for a model thread; where it is negative, threads wait."""
        self._cells[self._waiting] = max(0, count)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """While the model loads; it is ready when that has not failed."""
        begun = clock()
        self._cells[self._loading] = 1.0
        try:
            yield
        finally:
            self._cells[self._loading] = 0.0
        self._cells[self._load] = clock() - begun
        self._cells[self._ready] = 1.0

    def close(self) -> None:
        """The model is unloaded."""
        self._cells[self._ready] = 0.0

    @property
    def ledger(self) -> Ledger:
        """The accounts of all workers."""
        return self._account.ledger

    def page(self, accept: str) -> tuple[str, bytes]:
        """The content type and the body of the metrics of all workers."""
        return page.page(self._account.ledger, self._labels, accept, with_worker_id=self._with_worker_id)

    def _count(self, what: tuple[str, str, int]) -> int:
        path, protocol, status = what
        named = f"{status}xx" if status else _GONE
        at = self._counts[what] = series.own(self._account, families.REQUESTS, path, protocol, named)
        return at

    def _duration(self, path: str) -> int:
        at = self._durations[path] = series.own(self._account, families.DURATION, path)
        return at


def kind_of(error: BaseException) -> str:
    """What an error counts as: one of a few words, since a class may raise anything."""
    if not isinstance(error, errors.PreforkError):
        return "Internal"
    return type(error).__name__ if type(error) in _KINDS else "Custom"


def _kinds(of: type[errors.PreforkError]) -> set[type]:
    return set(of.__subclasses__()).union(*map(_kinds, of.__subclasses__()))


_KINDS = {each for each in _kinds(errors.PreforkError) if each.__module__ == errors.__name__}

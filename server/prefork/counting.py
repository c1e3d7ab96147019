"""What the meter is told of a request to a model: that the model was called, what its answer has cost, that there was none.

A model whose answers tell their cost is counted by its name, here; of any other the worker has only one, whose failures the meter
sees itself when the request leaves.
"""

from __future__ import annotations

from prefork.endpoints import Call
from prefork.http import Request
from prefork.metrics import Meter, clock
from prefork.payload import Payload, rows

_NANO = 1e9
_UNANSWERED = 4
"""Times of a request to which the model has not answered yet."""


def executed(meter: Meter, request: Request, call: Call) -> None:
    """The model has answered, or begun to."""
    times = request.times
    times.append(clock())
    plain = meter.plain
    if plain is not None:
        plain.executed(rows(call.payload), int((times[-1] - times[-2]) * _NANO))


def charge(meter: Meter, call: Call, answer: Payload) -> None:
    """Of an answer that tells its cost: count it."""
    if answer.cost is not None:
        spec = call.instance.spec
        meter.models.of(spec.name, spec.version).answered(answer.cost)


def failed(meter: Meter, request: Request, call: Call) -> None:
    """There is no answer."""
    if call.is_counted and len(request.times) <= _UNANSWERED:
        spec = call.instance.spec
        meter.models.of(spec.name, spec.version).failed(clock() - request.times[0])

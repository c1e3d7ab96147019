"""When a request's time is up: the server's limit, what the client says, whichever is earlier.

The time counts from the moment at which the request was read whole: waiting for the model and computing, not the network.
"""

from __future__ import annotations

import math
import time

from prefork.errors import BadRequest, DeadlineExceeded, Unavailable
from prefork.http import Request

HEADER = b"x-request-timeout"
_NAME = "X-Request-Timeout"
_SOON = (("Retry-After", "1"),)


def begin(request: Request, limit: float) -> None:
    """Set the deadline of a request that has arrived. Raises BadRequest for a header that is no number of seconds.

    limit: the server's, in seconds; 0 is none.
    """
    said = request.headers.get(HEADER)
    seconds = limit or math.inf
    if said is not None:
        seconds = min(seconds, _seconds(said))
    request.deadline = request.arrived + seconds


def lower(request: Request, seconds: float) -> None:
    """Bring the deadline forward to so many seconds after the request's arrival."""
    request.arrived = request.arrived or time.monotonic()
    deadline = request.arrived + seconds
    if deadline < request.deadline:
        request.deadline = deadline
        if request.lower is not None:
            request.lower(deadline)


def check_queue(request: Request) -> None:
    """Raise Unavailable for a request whose time was up before the model was asked."""
    if time.monotonic() >= request.deadline:
        raise late_in_queue(request)


def check_answer(request: Request) -> None:
    """Raise DeadlineExceeded for an answer that is late, where nobody could say so in time."""
    if request.lower is None and time.monotonic() >= request.deadline:
        raise late(request)


def late_in_queue(request: Request) -> Unavailable:
    """The refusal of a request whose time was up while it waited for the model."""
    error = Unavailable(f"the time for this request, {_allowed(request)}, was up before the model was free for it")
    error.headers = _SOON
    return error


def late(request: Request) -> DeadlineExceeded:
    """The end of a request whose time was up while the model computed."""
    return DeadlineExceeded(f"the model did not answer in the time for this request, {_allowed(request)}")


def full(waiting: int) -> Unavailable:
    """The refusal of a request for which there is no room in the queue."""
    error = Unavailable(f"{waiting} requests wait for the model already (max_queue)")
    error.headers = _SOON
    return error


def _allowed(request: Request) -> str:
    return f"{request.deadline - request.arrived:.3g} s"


def _seconds(said: bytes) -> float:
    try:
        value = float(said)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadRequest(f"{_NAME} must be a number of seconds above 0, got: {said[:40].decode('latin-1')!r}")
    return value

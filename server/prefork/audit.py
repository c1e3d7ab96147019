"""The audit log: one line for each request that is to change what the server does, the refused and the failed among them.

    client=127.0.0.1 action=load model="iris" status=200 seconds=0.412 reason=""

The logger is `prefork.audit`, and says this whatever level is set for the others. Texts are JSON, so that no name and no message
can forge a line; `forwarded` is there where a proxy, or whoever calls itself one, says for whom it asks.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from prefork.errors import PreforkError
from prefork.http import Request, Response

log = logging.getLogger("prefork.audit")
log.setLevel(logging.INFO)  # whoever is above it hands the line on without asking for its own level

_LONGEST = 1000
"""Characters of a text that are written."""

_ACTION = "audited_action"

S = TypeVar("S")
Endpoint = Callable[[S, Request], Response]


def audited(action: str) -> Callable[[Endpoint[S]], Endpoint[S]]:
    """Have an endpoint's requests written down under that name, once they are over."""

    def around(endpoint: Endpoint[S]) -> Endpoint[S]:
        @wraps(endpoint)
        def recorded(site: S, request: Request) -> Response:
            begun = time.monotonic()
            status, reason = 500, ""
            try:
                response = endpoint(site, request)
                status = response.status
            except BaseException as error:
                status, reason = _failure(error)
                raise
            finally:
                log.info("%s", _line(request, action, status, time.monotonic() - begun, reason))
            return response

        setattr(recorded, _ACTION, action)
        return recorded

    return around


def refused(endpoint: object, request: Request, error: PreforkError) -> None:
    """Write down a request that did not come as far as its endpoint, where that is one of those."""
    action = getattr(endpoint, _ACTION, "")
    if action:
        log.info("%s", _line(request, action, error.status, time.perf_counter() - request.times[0], error.message))


def _failure(error: BaseException) -> tuple[int, str]:
    if isinstance(error, PreforkError):
        return error.status, error.message
    return 500, f"{type(error).__name__}: {error}"


def _line(request: Request, action: str, status: int, seconds: float, reason: str) -> str:
    said = {"client": request.client, "action": action}
    if "model" in request.params:
        said["model"] = _text(request.params["model"])
    said |= {"status": str(status), "seconds": f"{seconds:.3f}", "reason": _text(reason)}
    if forwarded := request.header(b"x-forwarded-for"):
        said["forwarded"] = _text(forwarded)
    return " ".join(f"{name}={value}" for name, value in said.items())


def _text(value: str) -> str:
    return json.dumps(value[:_LONGEST])

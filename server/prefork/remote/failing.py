"""What becomes of a model's error on its way out: a line in the log, and a word on the memory that the model may have."""

from __future__ import annotations

import logging

from prefork.errors import ModelFailed, PreforkError, Unavailable
from prefork.remote.limits import Limits

log = logging.getLogger("prefork")


def told(error: PreforkError, limits: Limits) -> PreforkError:
    """The error without anything that holds the request: its traceback is in the log, where it is a model's own.

    One that lacked memory says what there is.
    """
    cause = error.__cause__
    if (isinstance(error, ModelFailed) or (error.status >= 500 and cause is not None)) and not _was_said(error):
        log.error("the model raised", exc_info=cause or error)
    if isinstance(cause, MemoryError) and limits.memory:
        error.message = f"{error.message} (memory_limit is {limits.memory} bytes)"
    error.__cause__ = error.__context__ = error.__traceback__ = None
    return error


def late() -> Unavailable:
    """The refusal of a request whose time was up while it waited."""
    error = Unavailable("the time for this request was up before the model was free for it")
    error.headers = (("Retry-After", "1"),)
    return error


def _was_said(error: PreforkError) -> bool:
    """Whether it is logged already: in a batch many requests have one cause."""
    cause = error.__cause__ or error
    if getattr(cause, "was_said_", False):
        return True
    cause.was_said_ = True  # type: ignore[attr-defined]
    return False

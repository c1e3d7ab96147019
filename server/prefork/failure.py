"""What a client is told of an exception of the user's code."""

from __future__ import annotations

import asyncio
import signal

from prefork.errors import ModelFailed, PreforkError


class Passing(BaseException):
    """What the server itself raises out of the user's code: nobody's failure."""


def is_users(error: BaseException) -> bool:
    """Whether what comes out of the user's code is that code's own: not a close, a cancel or a signal, which are to go on their way.

    Rust's extensions, for one, raise what is no Exception.
    """
    if isinstance(error, KeyboardInterrupt):
        return signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    return not isinstance(error, GeneratorExit | Passing)


def is_users_async(error: BaseException) -> bool:
    """As `is_users`, in a task of a running event loop."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return is_users(error)


def failure(error: BaseException) -> PreforkError:
    """The error for a client.

    A PreforkError is itself; one with an integer `status_code` keeps that, its message and its `reason`; all others are a
    ModelFailed with their text, or the name of their type where they have none.
    """
    if isinstance(error, PreforkError):
        return error
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and 200 <= status <= 599 and not isinstance(status, bool):
        message = getattr(error, "message", None) or str(error)
        return PreforkError(
            str(message), status=status, reason=getattr(error, "reason", None) or "MICROSERVICE_BAD_DATA"
        )
    if isinstance(error, SystemExit):
        return ModelFailed(f"the model called sys.exit({error.code!r}), which ends nothing here")
    return ModelFailed(str(error) or type(error).__name__)

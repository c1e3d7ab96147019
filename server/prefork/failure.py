"""What a client is told of an exception of the user's code."""

from __future__ import annotations

from prefork.errors import ModelFailed, PreforkError


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

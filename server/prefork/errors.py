"""The closed set of failures that a client or an operator can be told about.

Each class knows its HTTP status and the reason code that Seldon's error body carries. The message says what was
wrong and what to do; protocols only choose the shape around it.
"""

from __future__ import annotations


class PreforkError(Exception):
    """A failure with an HTTP status, a machine-readable reason and a sentence for a person.

    is_logged: whether its traceback is in the log already, where it came from another process.
    """

    status = 500
    reason = "MICROSERVICE_INTERNAL_ERROR"
    is_logged = False

    def __init__(self, message: str, *, status: int | None = None, reason: str | None = None) -> None:
        # It goes into JSON, and what it names need be no UTF-8: a file, or half of a surrogate pair.
        self.message = message.encode(errors="backslashreplace").decode()
        super().__init__(self.message)
        self.headers: tuple[tuple[str, str], ...] = ()
        if status is not None:
            self.status = status
        if reason is not None:
            self.reason = reason


class BadRequest(PreforkError):
    """The request cannot be understood; the message names the field."""

    status = 400
    reason = "MICROSERVICE_BAD_DATA"


class NotFound(PreforkError):
    """No such path, model or version."""

    status = 404
    reason = "NOT_FOUND"


class MethodNotAllowed(PreforkError):
    """The path exists, but not for this method; `Allow` lists those it has."""

    status = 405
    reason = "METHOD_NOT_ALLOWED"

    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(f"Method Not Allowed: {method}; this path takes {', '.join(allowed)}")
        self.headers = (("Allow", ", ".join(allowed)),)


class PayloadTooLarge(PreforkError):
    """The body, as sent or as decompressed, is over `max_body_size`."""

    status = 413
    reason = "PAYLOAD_TOO_LARGE"


class UnsupportedMediaType(PreforkError):
    """A Content-Type or Content-Encoding that this path does not take."""

    status = 415
    reason = "UNSUPPORTED_MEDIA_TYPE"


class ModelFailed(PreforkError):
    """The user's code raised; the message is its own, the traceback is in the log."""


class BadAnswer(PreforkError):
    """The user's code answered something that cannot be put on the wire; the message names its type."""

    reason = "MICROSERVICE_BAD_DATA"


class BadMetric(PreforkError):
    """The user's `metrics()` gave something that is no metric."""

    reason = "MICROSERVICE_BAD_METRIC"


class BadMetadata(PreforkError):
    """The user's `init_metadata()` does not describe a model."""

    reason = "MICROSERVICE_BAD_METADATA"


class NotImplementedHere(PreforkError):
    """The protocol has the operation, this model or this server does not."""

    status = 501
    reason = "NOT_IMPLEMENTED"


class Unavailable(PreforkError):
    """Not now: not ready, draining, or full; `Retry-After` says when to come back."""

    status = 503
    reason = "UNAVAILABLE"


class RequestTooSlow(PreforkError):
    """The client did not send its request whole within `read_timeout`."""

    status = 408
    reason = "REQUEST_TIMEOUT"


class DeadlineExceeded(PreforkError):
    """The model was still at it when the request's time was up."""

    status = 504
    reason = "DEADLINE_EXCEEDED"


class StartupError(Exception):
    """The server cannot start. The message is one clear line; `exit_code` is the process's."""

    exit_code = 2


class SettingError(StartupError):
    """A flag, a variable or a line of prefork.yaml that cannot be meant."""


class ModelLoadError(StartupError):
    """The user's class could not be imported, built or loaded."""

    exit_code = 3


class PreloadRefused(ModelLoadError):
    """What the class has built does not survive a fork; the message names the culprit and the cure."""


class RepositoryError(PreforkError):
    """What a repository holds under a name cannot be served, or a load asks for what cannot be; the message says what and where.

    versions: those that are there and that it keeps from being served.
    """

    status = 400
    reason = "BAD_REPOSITORY"
    versions: tuple[int, ...] = ()


class Unauthorized(PreforkError):
    """The operator's token is missing or wrong."""

    status = 401
    reason = "UNAUTHORIZED"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.headers = (("WWW-Authenticate", "Bearer"),)


class Forbidden(PreforkError):
    """The server was not told of anybody who may do this; the message says how it is told."""

    status = 403
    reason = "FORBIDDEN"

"""What the log is told of a request that failed. Refusals come in thousands when a server is full: of those one a second is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from prefork.errors import ModelFailed, PreforkError, Unavailable
from prefork.http import Request

log = logging.getLogger("prefork")

_QUIET = 1.0


class Complaints:
    """Writes them. clock: of seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = -_QUIET
        self._untold = 0

    def tell(self, request: Request, error: Exception) -> None:
        """Of a client's mistake nothing, of everything else what happened and where."""
        where = (request.method, request.path)
        if not isinstance(error, PreforkError):
            log.error("%s %s failed inside the server", *where, exc_info=error)
        elif isinstance(error, ModelFailed) and error.is_logged:
            log.error("%s %s: the model raised: %s", *where, error)
        elif isinstance(error, ModelFailed):
            log.error("%s %s: the model raised", *where, exc_info=error.__cause__ or error)
        elif isinstance(error, Unavailable):
            self._refused(where, error)
        elif error.status >= 500:
            log.error("%s %s: %d %s", *where, error.status, error, exc_info=error.__cause__)

    def _refused(self, where: tuple[str, str], error: PreforkError) -> None:
        now = self._clock()
        if now - self._since < _QUIET:
            self._untold += 1
            return
        more = f" (and {self._untold} more refusals before)" if self._untold else ""
        self._since, self._untold = now, 0
        log.warning("%s %s: %d %s%s", *where, error.status, error, more, exc_info=error.__cause__)

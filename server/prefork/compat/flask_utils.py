"""`seldon_core.flask_utils`: the exception that carries its own HTTP status."""

from __future__ import annotations

from typing import Any

from prefork.errors import PreforkError


class SeldonMicroserviceException(PreforkError):
    """Raised by a model to answer with a status and a reason of its own; 400 unless it says another.

    A subclass may set `status_code` or `reason` on the class, and need not call this constructor. `payload` is kept
    and, as in Seldon, not sent.
    """

    status_code = 400
    reason = "MICROSERVICE_BAD_DATA"
    message = ""
    headers = ()
    payload: Any = None

    def __init__(
        self,
        message: str,
        status_code: int | None = None,
        payload: Any = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, status=status_code, reason=reason)
        self.payload = payload

    @property
    def status(self) -> int:
        """The HTTP status: Seldon's name for it is `status_code`."""
        return self.status_code

    @status.setter
    def status(self, status: int) -> None:
        self.status_code = status

    def to_dict(self) -> dict[str, Any]:
        """Seldon's error body."""
        return {"status": {"code": -1, "info": self.message, "reason": self.reason, "status": 1}}

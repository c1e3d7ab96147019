"""Prefork: a preforking HTTP inference server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefork.errors import PreforkError, Unavailable

if TYPE_CHECKING:
    from prefork.model.reschedule import Reschedule, Rescheduled
    from prefork.model.sender import Sender, SenderClosed
    from prefork.payload import TensorSpec

__version__ = "0.1.0"

__all__ = [
    "PreforkError",
    "Reschedule",
    "Rescheduled",
    "Sender",
    "SenderClosed",
    "TensorSpec",
    "Unavailable",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # `prefork serve` sets the thread-count variables before numpy is imported, which reads them once.
    if name == "TensorSpec":
        from prefork.payload import TensorSpec

        return TensorSpec
    if name in {"Sender", "SenderClosed"}:
        from prefork.model import sender

        return getattr(sender, name)
    if name in {"Reschedule", "Rescheduled"}:
        from prefork.model import reschedule

        return getattr(reschedule, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

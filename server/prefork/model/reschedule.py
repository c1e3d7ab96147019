"""Handing a request back: `raise Reschedule(state)` puts it behind the others, and its next `predict` is given the state."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

T = TypeVar("T")


class Reschedule(Exception):
    """Raised by `predict` before its first part, once for a request: it wants to be called for it again, when others were.

    state: anything; it stays in this process.
    """

    def __init__(self, state: Any = None) -> None:
        super().__init__("Reschedule can be raised by predict only, and before its first part")
        self.state = state


class _Mark:
    def __repr__(self) -> str:
        return "Rescheduled"


MARK = _Mark()

Rescheduled = Annotated[T | None, MARK]
"""Annotates the parameter that gets the state; it is None when `predict` is called for a request for the first time."""

"""The model that the master has built for its workers, and how HUP builds it anew.

The new code is first built, examined and tried in a child, and only when that has succeeded in the master: a failure
there could leave threads behind, or half of the old modules. Until the new model stands the old one is what a worker
gets that is forked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefork.guard.guard import Guard
from prefork.guard.trial import Begin
from prefork.model import loader
from prefork.model.ownership import Ownership
from prefork.settings import Settings


class Preload:
    """One server's. construct: imports and builds the class; try_out: loads what it built, and predicts."""

    def __init__(self, settings: Settings, construct: Callable[[], Any], try_out: Callable[[Any, Begin], str]) -> None:
        self.model: Any = None
        self._ownership = Ownership.of(settings.model, settings.model_dir)
        self._guard = Guard(settings)
        self._construct = construct
        self._try_out = try_out

    def build(self) -> None:
        """Build the model. Raises PreloadRefused, or what the user's code raises."""
        self.model = self._guard.build(self._construct, self._try_out)

    def rebuild(self) -> None:
        """Build it with the user's code as it is now. Raises PreloadRefused; then the model is the one of before."""
        self._guard.rehearse(lambda: self._renew(self._try_out))
        self._renew(None)

    def give_back(self) -> None:
        """In a worker: let the numerical libraries have their threads."""
        self._guard.give_back()

    def _renew(self, try_out: Callable[[Any, Begin], str] | None) -> None:
        with loader.forgotten(self._ownership):
            self.model = self._guard.build(self._construct, try_out)

"""What gunicorn calls the application: the settings, the board and the model, as its arbiter and workers share them."""

from __future__ import annotations

import gc
from typing import Any, Protocol

import msgspec
from gunicorn import sock, util
from gunicorn.app.base import BaseApplication
from gunicorn.workers import base

from prefork import listener, refusal
from prefork.application import Front
from prefork.balance import Board
from prefork.configuration import configure, effective
from prefork.heartbeat import Heartbeat
from prefork.model import Model
from prefork.settings import Settings


class Wiring(Protocol):
    """What makes a model, and a front for it: `prefork.application`."""

    def construct(self, settings: Settings) -> Model:
        """Import and build the user's class."""
        ...

    def serve(self, model: Model, settings: Settings) -> Front:
        """Load the model and put a front before it."""
        ...


class Application(BaseApplication):
    """The model under construction. Raises SettingError for what gunicorn does not take."""

    def __init__(self, settings: Settings, wiring: Wiring) -> None:
        self.settings = effective(settings)
        self.notes = self.settings.notes[len(settings.notes) :]
        self.board = Board()
        self._wiring = wiring
        self._model: Model | None = None
        super().__init__(prog="prefork")

    def do_load_config(self) -> None:
        """Make gunicorn's configuration out of the settings."""
        self.load_default_config()
        configure(self.cfg, self.settings)
        self.cfg.validate()

    def wsgi(self) -> None:
        """Nothing: gunicorn asks before the address is bound. See `preload` and `serve`."""

    def bound(self, listeners: list[Any]) -> None:
        """Know the port that the kernel chose, where the settings left it to the kernel."""
        if self.settings.bind.endswith(":0"):
            port = listeners[-1].getsockname()[1]
            bind = f"{self.settings.bind.removesuffix(':0')}:{port}"
            self.settings = msgspec.structs.replace(self.settings, bind=bind)

    def preload(self) -> None:
        """Build the user's class here, for every worker to have it."""
        self._model = self._wiring.construct(self.settings)
        gc.collect()
        gc.freeze()  # a collection in a worker would write to every page that it looks at, and so copy it

    def serve(self) -> Front:
        """The loaded model behind its front; in a worker."""
        return self._wiring.serve(self._construct(), self.settings)

    def serve_custom(self) -> None:
        """Run the user's `custom_service`, in a process of its own; the model is not loaded."""
        hook = self._construct().custom_service
        if hook is not None:
            hook()

    def _construct(self) -> Model:
        return self._model or self._wiring.construct(self.settings)


def fit() -> None:
    """Put our parts in the place of gunicorn's in this process."""
    sock.create_sockets = listener.create_sockets
    util.write_error = refusal.write_error
    base.WorkerTmp = Heartbeat

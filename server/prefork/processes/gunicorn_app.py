"""What gunicorn calls the application: the settings, the board and the model, as its arbiter and workers share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from gunicorn import sock, util
from gunicorn.app.base import BaseApplication
from gunicorn.workers import base

from prefork import hosting
from prefork.application import Front
from prefork.guard import Preload
from prefork.metrics import Account, Ledger
from prefork.model import Model
from prefork.processes import listener, refusal
from prefork.processes.balance import Board
from prefork.processes.configuration import configure, effective
from prefork.processes.heartbeat import Heartbeat
from prefork.processes.metrics_port import MetricsPort
from prefork.processes.run_directory import RunDirectory
from prefork.settings import Settings


class Wiring(Protocol):
    """What makes a model, and a front for it: `prefork.application`."""

    def construct(self, settings: Settings) -> Model:
        """Import and build the user's class."""
        ...

    def serve(self, model: Model, settings: Settings, account: Account) -> Front:
        """Load the model and put a front before it."""
        ...

    def try_out(self, model: Model, settings: Settings, begin: Callable[[str], None]) -> str:
        """Do once what a worker does, and say what that was."""
        ...


class Application(BaseApplication):
    """The model under construction. Raises SettingError for what gunicorn does not take."""

    def __init__(self, settings: Settings, wiring: Wiring) -> None:
        self.settings = effective(settings)
        self.notes = self.settings.notes[len(settings.notes) :]
        self.board = Board()
        self.ledger = Ledger.of_server(self.settings.workers)
        self.metrics_port = MetricsPort(self.ledger, self.settings)
        self.run_directory = RunDirectory(self.settings.run_dir)
        self._wiring = wiring
        self._preload = Preload(
            self.settings,
            lambda: wiring.construct(self.settings),
            lambda model, begin: wiring.try_out(model, self.settings, begin),
        )
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
        if listeners and self.settings.bind.endswith(":0"):
            port = listeners[-1].getsockname()[1]
            bind = f"{self.settings.bind.removesuffix(':0')}:{port}"
            self.settings = msgspec.structs.replace(self.settings, bind=bind)

    def preload(self) -> None:
        """Build the user's class here, for every worker to have it. Raises PreloadRefused, or what the class raises."""
        self._preload.build()

    def rebuild(self) -> None:
        """Build it with the code as it is now; when that raises, the model of before stays."""
        self._preload.rebuild()

    @property
    def is_hosted(self) -> bool:
        """Whether the models run in processes of their own."""
        return hosting.is_hosted(self.settings)

    def serve(self, account: Account) -> Front:
        """The loaded model behind its front; in a worker, which counts in that account."""
        self.metrics_port.close()
        self.run_directory.let_go()
        if self.is_hosted:
            return hosting.serve(self.settings, account, self.run_directory.path)
        return self._wiring.serve(self._construct(), self.settings, account)

    def serve_custom(self) -> None:
        """Run the user's `custom_service`, in a process of its own; the model is not loaded."""
        self.metrics_port.close()
        self.run_directory.let_go()
        hook = self._construct().custom_service
        if hook is not None:
            hook()

    def _construct(self) -> Model:
        if self._preload.model is None:
            return self._wiring.construct(self.settings)
        self._preload.give_back()
        model: Model = self._preload.model
        return model


def fit() -> None:
    """Put our parts in the place of gunicorn's in this process."""
    sock.create_sockets = listener.create_sockets
    util.write_error = refusal.write_error
    base.WorkerTmp = Heartbeat

"""The user's `custom_service` where the model has processes of its own."""

from __future__ import annotations

from instance_process import InstanceProcess
from prefork.payload import Kind, Payload
from repositories import descendants, is_alive
from running import serving, wait_until

SOURCE = """
import os, pathlib, threading

class Model:
    def load(self):
        self.loaded = True

    def custom_service(self):
        assert self.loaded
        (pathlib.Path("services") / str(os.getpid())).touch()
        threading.Event().wait()

    def predict(self, X, names=None):
        return [[os.getpid()]]
"""


def text(value):
    return Payload(Kind.TEXT, value)


def ask(instance, request):
    (found,) = instance.infer(request)
    return found.value


def test_custom_service_runs_in_the_first_instance():
    """It runs in a thread of it, starts again when it has failed, and ends with the process."""
    with InstanceProcess("remote_models:Serviced") as process:
        instance = process.serve().instance()
        wait_until(lambda: ask(instance, text("x"))["thread"] == "custom_service", "the service")
        assert ask(instance, text("x"))["started"] == 2
        assert "RuntimeError: the port is taken" in process.log.read_text()
        process.tell("close")
        assert process.wait() == 0


def test_custom_service_that_returns_has_ended():
    """Nobody starts it again, and the model goes on."""
    with InstanceProcess("remote_models:Ended") as process:
        instance = process.serve().instance()
        wait_until(lambda: "custom_service has ended" in process.log.read_text(), "its end")
        assert ask(instance, text("x")) == "x"
        assert process.log.read_text().count("custom_service runs") == 1


def test_custom_service_runs_in_no_other_instance():
    """The siblings of the first leave it alone."""
    with InstanceProcess("remote_models:Serviced", more={"place": 1}) as process:
        assert ask(process.serve().instance(), text("x")) == {"started": 0, "thread": ""}
        assert "custom_service" not in process.log.read_text()


def test_one_service_a_version(tmp_path):
    """A server with two instances and two workers has one, beside the loaded model, and it ends with the server."""
    (tmp_path / "services").mkdir()
    flags = ("--host", "process", "--instances", "2", "--workers", "2")
    with serving(tmp_path, SOURCE, *flags) as server:
        wait_until(lambda: list((tmp_path / "services").iterdir()), "the service")
        below = descendants(server.process.pid)
        assert server.stop() == 0
    (service,) = (int(each.name) for each in (tmp_path / "services").iterdir())
    assert service in below
    assert not is_alive(service)

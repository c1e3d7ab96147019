"""Descriptors 0 to 2 are open, and nobody's connection or file, in every process of a server."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import pytest

from instance_process import InstanceProcess
from prefork.payload import Kind, Payload
from running import SOURCE, free_port, wait_until

CLOSED = (
    "import os, sys; [os.close(each) for each in (0, 1, 2)]; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)

MODEL = """
import os

class M:
    def load(self):
        if os.path.exists("close-on-load"):
            os.closerange(0, 3)
        self.file = open("weights", "w+")

    def predict(self, X, names):
        print("printed")
        if X == "close":
            os.closerange(0, 3)
        return str(self.file.fileno() > 2)

class Later(M):
    async def predict(self, X, names):
        return M.predict(self, X, names)
"""


def ask(instance, value):
    (found,) = instance.infer(Payload(Kind.TEXT, value))
    return found.value


def targets(pid):
    return [os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)]  # noqa: PTH115


@pytest.mark.parametrize("class_", ["M", "Later"])
def test_a_model_that_closes_them_prints_into_the_log_and_into_nothing_else(tmp_path, class_):
    """Requests are answered, each with its own answer, and what is printed from then on is in the log again."""
    (tmp_path / "the_model.py").write_text(MODEL)
    with InstanceProcess(f"the_model:{class_}", folder=str(tmp_path)) as process:
        instance = process.serve().instance()
        for _ in range(3):
            assert ask(instance, "close") == "True"
            wait_until(lambda: all(os.path.lexists(f"/proc/{process.pid}/fd/{each}") for each in (0, 1, 2)), "them")
            before = process.log.read_text().count("printed")
            assert [ask(process.instance(), str(number)) for number in range(5)] == ["True"] * 5
            assert process.log.read_text().count("printed") == before + 5
        assert targets(process.pid) == ["/dev/null", str(process.log), str(process.log)]


def test_a_model_that_closes_them_when_it_is_made_has_them_when_it_loads(tmp_path):
    """A file that it opens has another number."""
    (tmp_path / "the_model.py").write_text(f"import os\nos.closerange(0, 3)\n{MODEL}")
    with InstanceProcess("the_model:M", folder=str(tmp_path)) as process:
        assert ask(process.serve().instance(), "x") == "True"


@pytest.mark.parametrize("host", ["worker", "process"])
def test_a_server_that_is_started_without_them_serves(tmp_path, host):
    """They are /dev/null then, in all of its processes."""
    (tmp_path / "the_model.py").write_text(MODEL)
    port = free_port()
    command = ["-m", "prefork", "serve", "the_model:M", "--host", host, "--bind", f"127.0.0.1:{port}"]
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen([sys.executable, "-c", CLOSED, *command], cwd=tmp_path, env=env)
    try:
        wait_until(lambda: answer(port) == "True", "an answer")
        for pid in [process.pid, *children(process.pid)]:
            assert not [each for each in targets(pid) if not each.startswith(("/dev/null", "pipe:"))]
    finally:
        process.terminate()
        assert process.wait(60) == 0


def answer(port):
    try:
        response = httpx.post(f"http://127.0.0.1:{port}/predict", json={"strData": "x"}, timeout=30)
    except httpx.TransportError:
        return None
    return response.json().get("strData")


def children(pid):
    found = []
    with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
        for each in file.read().split():
            found += [each, *children(each)]
    return found

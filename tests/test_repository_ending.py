"""The ends that a running server with models in processes of their own may come to, and what clients see of them."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from repositories import add, descendants, load, repository_server, unload, wait_gone
from running import launched, wait_until

DEAF = """
import ctypes, pathlib

class Model:
    def predict(self, x: float):
        {first}
        pathlib.Path({file!r}).touch()
        ctypes.PyDLL(None).sleep(600)  # with the lock of the interpreter: nothing in its process runs any more
        return 1.0
"""


HANGS = """
import pathlib, time

class Model:
    def load(self):
        pathlib.Path({file!r}).touch()
        time.sleep(600)

    def predict(self, x: float):
        return x
"""


def generate(client: httpx.Client, name: str, path: str = "generate") -> httpx.Response:
    return client.post(f"/v2/models/{name}/{path}", json={"x": 1.0})


@pytest.mark.parametrize(
    ("path", "first", "status"),
    [("generate", "pass", 503), ("generate_stream", "yield 0.5", 200)],
    ids=["one", "stream"],
)
def test_a_request_that_outlives_an_unload_is_told(tmp_path, path, first, status):
    """Also where its process hears nothing and is killed: a 503 that says why, and a stream ends with an error event."""
    file = tmp_path / "entered"
    add(tmp_path / "models", "deaf", DEAF.format(first=first, file=str(file)), unload_timeout=0.1)
    flags = ("--control", "explicit", "--load-model", "deaf")
    with repository_server(tmp_path, *flags) as server, server.client() as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(generate, client, "deaf", path)
        wait_until(file.exists, "the request to be computed")
        with server.client() as operator:
            assert unload(operator, "deaf").status_code == 200
        answer = asked.result()
        assert answer.status_code == status
        assert '{"error":"the model deaf was unloaded before it had answered this request"}' in answer.text


def test_a_stop_waits_for_no_load(tmp_path):
    """However long a load and a graceful stop may take: it is given up at once, and its client is told."""
    file = tmp_path / "loading"
    add(tmp_path / "models", "hangs", HANGS.format(file=str(file)), load_timeout=600)
    flags = ("--control", "explicit", "--graceful-timeout", "600")
    with repository_server(tmp_path, *flags) as server, server.client() as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(load, client, "hangs")
        wait_until(file.exists, "the load to hang")
        assert server.stop() == 0
        answer = asked.result()
        assert (answer.status_code, answer.json()["error"]) == (503, "the server is stopping")
        assert list((tmp_path / "run").iterdir()) == []


def test_a_temporary_run_directory_goes_with_a_server_that_is_killed(tmp_path):
    """As with one that is stopped; a folder that was asked for stays, and is empty."""
    add(tmp_path / "models", "hangs", HANGS.format(file=str(tmp_path / "loading")))
    (tmp_path / "tmp").mkdir()
    flags = ("--repository", "models", "--control", "explicit")
    for how in (signal.SIGTERM, signal.SIGKILL):
        with launched(tmp_path, *flags, env={"TMPDIR": str(tmp_path / "tmp")}) as server:
            everybody = descendants(server.process.pid)
            assert len(list((tmp_path / "tmp").glob("prefork-*"))) == 1
            server.stop(how)
            wait_gone(everybody)
            assert list((tmp_path / "tmp").iterdir()) == []

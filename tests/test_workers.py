"""`prefork workers`: an operator's commands against a running server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest

from prefork.workers import table
from running import SOURCE, free_port, serving, wait_until

ENV = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
TOKEN = {"PREFORK_ADMIN_TOKEN": "secret"}
MODEL = """
    import pathlib, time
    class Model:
        def load(self):
            while pathlib.Path("hold").exists():
                time.sleep(0.01)
            if pathlib.Path("fail").exists():
                raise RuntimeError("the weights are gone")
        def predict(self, X, names=None):
            return X
"""


def prefork(*args, **env):
    command = [sys.executable, "-m", "prefork", "workers", *args]
    return subprocess.run(command, check=False, env={**ENV, **env}, capture_output=True, text=True, timeout=60)


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path, MODEL, "--workers", "2", env=TOKEN) as running:
        with running.client() as client:
            wait_until(lambda: len(pids_of(client)) == 2, "both workers")
        yield running


def pids_of(client):
    return {each["pid"] for each in client.get("/ready").json()["models"][0]["workers"] if each["state"] == "ready"}


def listed(done):
    """The pids of a list, with the rest of their lines."""
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split("  ")[0] == "MODEL"
    return {int(line.split()[2]): line for line in lines if line.startswith("Model ")}


def test_the_list_is_what_readiness_says(server):
    """One line a worker: model, version, process, state, since when."""
    with server.client() as client:
        pids = pids_of(client)
    found = listed(prefork("list", "--url", server.url))
    assert set(found) == pids
    for pid, line in found.items():
        assert re.fullmatch(rf"Model +1 +{pid} +ready +\d{{4}}-\d\d-\d\dT\S+", line)


def test_a_recycle_that_is_waited_for(server):
    """`--wait` returns when the old workers are gone; what it prints is who went and who came."""
    before = set(listed(prefork("list", "--url", server.url)))
    done = prefork("recycle", "--url", server.url, "--wait", **TOKEN)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first == f"to be replaced: {', '.join(map(str, sorted(before)))}"
    after = set(listed(prefork("list", "--url", server.url)))
    assert not after & before
    assert re.fullmatch(rf"replaced by {', '.join(map(str, sorted(after)))} in \d+\.\d s", last)


def test_the_token_from_the_command_line_and_a_recycle_that_is_not_waited_for(server, tmp_path):
    """`--token` is as good as the variable; without `--wait` it returns at once, and the list says what is going on."""
    (tmp_path / "hold").touch()
    done = prefork("recycle", "--url", server.url.removeprefix("http://"), "--token", "secret")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    wait_until(lambda: "loading" in prefork("list", "--url", server.url).stdout, "a replacement")
    found = listed(prefork("list", "--url", server.url))
    assert sorted(line.split()[3] for line in found.values()) == ["loading", "ready", "ready"]
    assert sum(line.endswith("  operator") for line in found.values()) == 2
    (tmp_path / "hold").unlink()


def test_a_wait_ends_when_a_replacement_cannot_load(server, tmp_path):
    """The old workers go on; the command fails and says why, and so does the list."""
    (tmp_path / "fail").touch()
    done = prefork("recycle", "--url", server.url, "--wait", **TOKEN)
    assert done.returncode == 1
    assert re.fullmatch(r"prefork: the old workers go on: worker \d+ left with status 3 before .*\n", done.stderr)
    assert "the last replacement: worker " in prefork("list", "--url", server.url).stdout


def test_a_wait_has_an_end(server, tmp_path):
    """After `--timeout` it fails and names those that are still there."""
    (tmp_path / "hold").touch()
    with server.client() as client:
        pids = pids_of(client)
    begun = time.monotonic()
    done = prefork("recycle", "--url", server.url, "--wait", "--timeout", "0.5", **TOKEN)
    assert done.returncode == 1
    assert time.monotonic() - begun >= 0.5
    assert done.stderr == f"prefork: after 0.5 s these are still there: {', '.join(map(str, sorted(pids)))}\n"
    (tmp_path / "hold").unlink()


@pytest.mark.parametrize(
    ("token", "said"),
    [("", "refuses, 401: /v2/workers/recycle needs the operator's token"), ("wrong", "refuses, 401: ")],
)
def test_a_refusal_is_one_line(server, token, said):
    """What the server answers to a wrong token, and status 1; nobody is replaced."""
    before = set(listed(prefork("list", "--url", server.url)))
    done = prefork("recycle", "--url", server.url, PREFORK_ADMIN_TOKEN=token)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"prefork: {server.url} {said}")
    assert done.stderr.count("\n") == 1
    assert set(listed(prefork("list", "--url", server.url))) == before


@pytest.mark.parametrize("command", ["list", "recycle"])
def test_a_server_that_is_not_there_is_one_line(command):
    """Nobody listens: one line with the address, and status 1."""
    url = f"http://127.0.0.1:{free_port()}"
    done = prefork(command, "--url", url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"prefork: {url} does not answer: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("url", ["http://", "http://127.0.0.1:port", "ftp://127.0.0.1:1"])
def test_an_address_that_cannot_be_meant_is_one_line(url):
    """The same for a URL that is none."""
    done = prefork("list", "--url", url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"prefork: {url} ")
    assert done.stderr.count("\n") == 1


def test_another_server_is_told_from_prefork(tmp_path):
    """What answers otherwise than Prefork does is said to, in one line."""
    port = free_port()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(tmp_path), str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as other:
        try:
            wait_until(
                lambda: "not as Prefork does" in prefork("list", "--url", f"http://127.0.0.1:{port}").stderr, "it"
            )
        finally:
            other.terminate()


def test_columns_are_as_wide_as_they_have_to_be():
    """No blanks at the end of a line."""
    assert table([("A", "LONG", "C"), ("wider", "b", "")]) == "A      LONG  C\nwider  b\n"

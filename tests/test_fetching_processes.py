"""Several processes at one address, and processes that are killed in the middle."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

import object_store
from prefork.fetching import local
from prefork.fetching.cache import Cache
from prefork.fetching.location import read
from running import SOURCE, wait_until

CONTENT = random.Random(11).randbytes(3_000_000)
PROGRAM = """
import logging, sys
from prefork.fetching import local
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
print("path", local(sys.argv[1], cache=sys.argv[2]), flush=True)
"""


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with object_store.storing() as found:
        found.files["m.onnx"] = CONTENT
        yield found


@pytest.fixture
def start(store, tmp_path):
    """Start a process that fetches the model, in a group of its own."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", PROGRAM, f"{store.url}/m.onnx", str(tmp_path / "cache")],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        started.append(process)
        return process

    yield start
    for each in started:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)
        each.wait()
        each.stdout.close()


def path_of(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith("path ")).removeprefix("path ")


def held(store):
    """Have the body stop in its middle until the store is opened."""
    store.after = 1_000_000
    store.open.clear()


def killed_halfway(store, start, tmp_path):
    """Have a download killed with its group, some bytes being on the disk; the folder of these."""
    held(store)
    first = start()
    assert store.held.wait(60)
    partial = tmp_path / "cache" / "partial"
    wait_until(lambda: any(each.stat().st_size for each in partial.glob("*")), "the first bytes on the disk")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    return partial


def test_two_processes_download_once(store, start):
    """The second one says that it waits, and both get the same path after one download."""
    held(store)
    first = start()
    assert store.held.wait(60)
    second = start()
    assert "another process downloads it; waiting" in second.stdout.readline()
    store.open.set()
    paths = [path_of(each.communicate(timeout=60)[0]) for each in (first, second)]
    assert paths[0] == paths[1]
    assert store.ranges() == [""]


def test_killed_in_the_middle(store, start, tmp_path):
    """After KILL there is a partial file and nothing that could be served; the next one asks for the rest only."""
    partial = killed_halfway(store, start, tmp_path)
    (part,) = partial.iterdir()
    there = part.stat().st_size
    assert list((tmp_path / "cache" / "trees").iterdir()) == []
    assert list((tmp_path / "cache" / "addresses").iterdir()) == []
    store.open.set()
    path = local(f"{store.url}/m.onnx", cache=tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    assert store.ranges() == ["", f"bytes={there}-"]


def test_the_download_ends_with_who_asked(store, start, tmp_path):
    """When the process that asked is killed alone, the one that downloads lets go of the address at once."""
    held(store)
    first = start()
    assert store.held.wait(60)
    first.kill()
    first.wait()
    waited: list[bool] = []
    with Cache(tmp_path / "cache").lock(read(f"{store.url}/m.onnx").key, lambda: waited.append(True)):
        assert len(waited) <= 1


def test_a_tree_that_was_left_half_built(store, tmp_path):
    """What a crash has left under a tree's temporary name is in nobody's way."""
    left = tmp_path / "cache" / "trees" / ".new" / "m.onnx"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    assert local(f"{store.url}/m.onnx", cache=tmp_path / "cache").read_bytes() == CONTENT


def test_partial_files_of_other_versions_go(store, start, tmp_path):
    """What was gathered of a version that is no longer there is removed, and never added to."""
    partial = killed_halfway(store, start, tmp_path)
    store.open.set()
    store.files["m.onnx"] = CONTENT[::-1]
    assert local(f"{store.url}/m.onnx", cache=tmp_path / "cache").read_bytes() == CONTENT[::-1]
    assert list(partial.iterdir()) == []
    assert store.ranges() == ["", ""]

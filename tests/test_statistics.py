"""V2's statistics of a model: what is counted, wherever the model lives and whichever front asks it."""

from __future__ import annotations

import time

import pytest

from prefork.testing import Client
from repositories import is_alive
from running import serving, wait_until

SOURCE = """
class Model:
    def predict(self, X, names=None):
        if (X < 0).any():
            raise ValueError("less than nothing")
        return X
"""
OPERATOR = {"Authorization": "Bearer t"}
WAYS = {
    "worker": (),
    "worker inline": ("--threads", "0"),
    "worker sync": ("--worker-class", "sync"),
    "worker batched": ("--max-batch-size", "8"),
    "process": ("--host", "process"),
    "process sync": ("--host", "process", "--worker-class", "sync"),
    "process batched": ("--host", "process", "--max-batch-size", "8"),
}


class Model:
    def predict(self, X, names=None):
        return X


class Words:
    def predict(self, n: int):
        yield {"word": "a"}
        yield {"word": "b"}


def ask(client, rows, value=1.0, model="Model"):
    tensor = {"name": "x", "shape": [rows, 1], "datatype": "FP64", "data": [value] * rows}
    return client.post(f"/v2/models/{model}/infer", json={"inputs": [tensor]}).status_code


def stats(client, model="Model"):
    (found,) = client.get(f"/v2/models/{model}/stats").json()["model_stats"]
    return found


@pytest.mark.parametrize("way", WAYS)
def test_counts_and_times_are_the_same_everywhere(tmp_path, way):
    """Rows, executions by their exact rows, real times, failures of the model alone, when it was last asked, and its memory."""
    begun = time.time() * 1000
    with serving(tmp_path, SOURCE, "--workers", "1", *WAYS[way]) as server, server.client() as client:
        assert [ask(client, rows) for rows in (1, 3, 3)] == [200, 200, 200]
        assert ask(client, 1, -1.0) == 500
        assert client.post("/v2/models/Model/infer", json={}).status_code == 400
        assert client.get("/nowhere").status_code == 404
        found = stats(client)
    assert (found["inference_count"], found["execution_count"]) == (7, 3)
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in found["batch_stats"]] == [(1, 1), (3, 2)]
    assert all(each["compute_infer"]["ns"] > 0 for each in found["batch_stats"])
    spent = found["inference_stats"]
    assert [spent[name]["count"] for name in ("success", "fail", "compute_infer")] == [3, 1, 3]
    assert min(spent[name]["ns"] for name in ("success", "fail", "compute_infer")) > 0
    assert begun <= found["last_inference"] <= time.time() * 1000
    (memory,) = found["memory_usage"]
    assert (memory["type"], memory["id"]) == ("CPU", 0)
    assert memory["byte_size"] > 1 << 20


def test_counts_survive_the_workers(tmp_path):
    """What replaced workers have counted is in the statistics still."""
    flags = ("--workers", "1")
    with serving(tmp_path, SOURCE, *flags, env={"PREFORK_ADMIN_TOKEN": "t"}) as server:
        with server.client() as client:
            assert [ask(client, rows) for rows in (2, 5)] == [200, 200]
            before = stats(client)
            answer = client.post("/v2/workers/recycle", headers=OPERATOR)
        (old,) = answer.json()["replaced"]
        wait_until(lambda: not is_alive(old), "the end of the old worker")
        with server.client() as client:
            assert ask(client, 2) == 200
            after = stats(client)
    assert after["inference_count"] == 9
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in after["batch_stats"]] == [(2, 2), (5, 1)]
    assert after["last_inference"] >= before["last_inference"]


def test_batches_are_counted_by_all_their_rows(front):
    """Up to 128 rows exactly; more under the next power of two, while `inference_count` has every row."""
    with Client(Model, front, max_body_size=1 << 20) as client:
        for rows in (128, 129, 256, 300):
            assert ask(client, rows) == 200
        found = stats(client)
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in found["batch_stats"]] == [
        (128, 1),
        (256, 2),
        (512, 1),
    ]
    assert found["inference_count"] == 128 + 129 + 256 + 300


def test_streams_are_executions(front):
    """A stream is one execution, whatever it has of parts."""
    with Client(Words, front) as client:
        assert client.post("/v2/models/Words/generate_stream", json={"n": 2}).text.count("data: ") == 2
        found = stats(client, "Words")
    assert (found["inference_count"], found["execution_count"]) == (1, 1)
    assert found["last_inference"] > 0


def test_a_model_that_nobody_has_asked(front):
    """It has nothing but zeros, and no batches."""
    with Client(Model, front) as client:
        found = stats(client)
    assert (found["inference_count"], found["execution_count"], found["last_inference"]) == (0, 0, 0)
    assert found["batch_stats"] == []
    assert {name: each["count"] for name, each in found["inference_stats"].items() if each["count"]} == {}

"""Liveness and readiness of real servers: what a probe is told, and when."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from gated import SLEEPING, SPINNING, body, children, gated
from running import wait_until

LIVE = ("/live", "/v2/health/live", "/health/ping")
READY = ("/ready", "/v2/health/ready", "/v2/models/Model/ready")

LOADING = (
    SLEEPING
    + """
    def load(self):
        mark("loading", os.getpid())
        while held(0):
            time.sleep(0.005)
        if held("failure"):
            raise RuntimeError("the weights are gone")
"""
)


def ready(server):
    with server.running.client() as client:
        answer = client.get("/ready")
        return answer.status_code, answer.json()


def pids(server):
    return {each["pid"] for each in ready(server)[1]["models"][0]["workers"] if each["state"] == "ready"}


@contextmanager
def probing(server):
    """Ask all three readiness paths without a pause; the statuses that came."""
    seen: set[int] = set()
    stop = threading.Event()

    def probe():
        while not stop.is_set():
            with server.running.client() as client:
                seen.update(client.get(path).status_code for path in READY)

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("source", [SLEEPING, SPINNING], ids=["releases the GIL", "holds the GIL"])
@pytest.mark.parametrize("threads", [1, 3])
def test_probes_are_answered_whatever_predict_does(tmp_path, source, threads):
    """While every model thread is busy, liveness and readiness are answered as ever."""
    with gated(tmp_path, source, "--threads", str(threads)) as server:
        for number in range(threads):
            server.busy(number)
        with server.running.client() as client:
            for path in (*LIVE, *READY):
                for _ in range(5):
                    assert client.get(path).status_code == 200


def test_ready_tells_of_every_worker(tmp_path):
    """/ready has the model's name and version and, for each worker, its pid, its state and since when."""
    with gated(tmp_path, SLEEPING, "--workers", "2", "--model-version", "7") as server:
        wait_until(lambda: len(pids(server)) == 2, "both workers")
        status, detail = ready(server)
        assert status == 200
        assert detail["ready"] is True
        (model,) = detail["models"]
        assert (model["name"], model["version"], model["ready"]) == ("Model", "7", True)
        assert {each["pid"] for each in model["workers"]} == children(server.running.process.pid)
        for each in model["workers"]:
            assert set(each) == {"pid", "state", "since"}
            assert abs(datetime.now(UTC) - datetime.fromisoformat(each["since"])) < timedelta(minutes=2)


def test_v2_readiness_has_no_body(tmp_path):
    """V2's health paths answer with a status and nothing else, as clients of the protocol expect."""
    with gated(tmp_path, SLEEPING) as server, server.running.client() as client:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/Model/ready"):
            answer = client.get(path)
            assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("worker_class", ["asgi", "sync", "gthread", "gevent"])
def test_a_reload_never_makes_ready_false(tmp_path, worker_class):
    """While replacements load and until all are in, every probe is told ready; the detail names who is replaced and why."""
    with gated(tmp_path, LOADING, "--workers", "2", "--worker-class", worker_class) as server:
        wait_until(lambda: len(pids(server)) == 2, "both workers")
        old = pids(server)
        server.hold(0)
        with probing(server) as seen:
            os.kill(server.running.process.pid, signal.SIGHUP)

            def in_progress():
                workers = ready(server)[1]["models"][0]["workers"]
                due = {each["pid"] for each in workers if each.get("replaced_for") == "HUP"}
                return due == old and any(each["state"] == "loading" for each in workers)

            wait_until(in_progress, "a recycle in the detail")
            server.release(0)
            wait_until(lambda: len(pids(server)) == 2 and not pids(server) & old, "new workers")
        assert seen == {200}


def test_a_replacement_that_cannot_load_is_told_and_changes_nothing(tmp_path):
    """The old worker stays ready; the detail says what happened, until a later replacement has loaded."""
    with gated(tmp_path, LOADING) as server:
        old = pids(server)
        (tmp_path / "hold.failure").touch()
        with probing(server) as seen:
            os.kill(server.running.process.pid, signal.SIGHUP)
            wait_until(lambda: "before its model had loaded" in ready(server)[1].get("trouble", ""), "the trouble")
            assert pids(server) == old
            (tmp_path / "hold.failure").unlink()
            os.kill(server.running.process.pid, signal.SIGHUP)
            wait_until(lambda: pids(server) and not pids(server) & old, "a new worker")
            wait_until(lambda: "trouble" not in ready(server)[1], "the end of the trouble")
        assert seen == {200}


@pytest.mark.parametrize("worker_class", ["asgi", "sync", "gthread", "gevent"])
def test_term_makes_ready_false_at_once_and_nothing_else(tmp_path, worker_class):
    """For `drain_grace` after TERM readiness is 503 with the reason, liveness 200, and requests are answered."""
    flags = ("--drain-grace", "600", "--worker-class", worker_class)
    with gated(tmp_path, SLEEPING, *flags) as server:
        server.running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: ready(server)[0] == 503, "503")
        _, detail = ready(server)
        assert detail["ready"] is False
        assert "told to stop" in detail["reason"]
        assert detail["models"][0]["ready"] is True
        with server.running.client() as client:
            for path in ("/v2/health/ready", "/v2/models/Model/ready"):
                answer = client.get(path)
                assert (answer.status_code, answer.content) == (503, b"")
            for path in LIVE:
                assert client.get(path).status_code == 200
            assert client.post("/predict", json=body(1)).status_code == 200
        assert server.running.stop(signal.SIGINT) == 0

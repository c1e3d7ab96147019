"""The terms on which requests wait for a model of a repository, on a real server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from repositories import GATED, add, ask, repository_server
from running import wait_until


@pytest.fixture
def place(tmp_path):
    """Where the gated models look."""
    (tmp_path / "hold").touch()
    return tmp_path


def gated(place, **batching):
    """A model that computes as long as `hold` is there."""
    add(place / "models", "m", GATED.format(place=str(place)), batching=batching)


def occupied(place):
    wait_until(lambda: list(place.glob("entered.*")), "the model to be busy")


def test_who_has_waited_too_long_is_told_while_the_model_is_busy(place):
    """Over `queue_timeout` a request is refused at once; the one that the model has is answered when it is."""
    gated(place, max_batch_size=1, queue_timeout=100_000)
    with repository_server(place) as server, server.client() as client, ThreadPoolExecutor() as pool:
        first = pool.submit(ask, client, "m")
        occupied(place)
        late = [pool.submit(ask, client, "m") for _ in range(3)]
        for each in late:
            assert each.result().status_code == 503
            assert "Request timeout expired" in each.result().text
            assert each.result().headers["retry-after"] == "1"
        assert not first.done()
        (place / "hold").unlink()
        assert first.result().status_code == 200
        assert ask(client, "m").status_code == 200


@pytest.mark.parametrize("allowed", [True, False])
def test_a_request_shortens_its_time_only_where_it_may(place, allowed):
    """Under `allow_timeout_override: false` a request's `timeout` means nothing; else it is what it gives itself."""
    gated(place, max_batch_size=1, allow_timeout_override=allowed)
    with repository_server(place) as server, server.client() as client, ThreadPoolExecutor() as pool:
        first = pool.submit(ask, client, "m")
        occupied(place)
        impatient = pool.submit(ask, client, "m", timeout=50_000)
        patient = pool.submit(ask, client, "m", timeout=400_000)
        if allowed:
            assert impatient.result().status_code == 503
            assert patient.result().status_code == 503
        else:
            until = time.monotonic() + 0.6
            wait_until(lambda: time.monotonic() > until, "what it says to be over")
            assert not impatient.done()
            assert not patient.done()
        (place / "hold").unlink()
        assert first.result().status_code == 200
        assert allowed or impatient.result().status_code == patient.result().status_code == 200

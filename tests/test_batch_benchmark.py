"""The batching benchmark compares what it says it does."""

from __future__ import annotations

from benchmarks.batching import measure
from prefork.repository.config import Batching


def test_only_batching_puts_requests_together():
    """Without batching each call of the model has one request, with it several, and all clients are answered."""
    alone = measure(None, seconds=0.2, one=0.001, clients=8)
    batched = measure(Batching(max_batch_size=8), seconds=0.2, one=0.001, clients=8)
    assert alone.batch == 1
    assert 1 < batched.batch <= 8
    assert min(alone.rate, batched.rate) > 0

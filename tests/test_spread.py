"""Points that keep apart: quotas of requests, and the times at which workers are due."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.processes.spread import farthest, fraction, quota


def test_the_first_fractions():
    """Halves, then quarters, then eighths, each in the widest gap that is left."""
    assert [fraction(n) for n in range(8)] == [0, 1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8, 3 / 8, 7 / 8]


@given(st.integers(0, 10**6))
def test_a_fraction_is_one(number):
    """It is at least 0 and below 1."""
    assert 0 <= fraction(number) < 1


@pytest.mark.parametrize("workers", [2, 4, 8, 64])
def test_no_two_of_the_workers_that_start_together_have_nearly_the_same_quota(workers):
    """The jitter is divided evenly among them: no two are closer than the jitter over their number, to a request."""
    quotas = [quota(number, 1000, 500) for number in range(1, workers + 1)]
    assert min(abs(one - other) for one, other in combinations(quotas, 2)) >= 501 // workers
    assert min(quotas) >= 1000
    assert max(quotas) <= 1500


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_quota_is_within_the_jitter(number, least, jitter):
    """Never fewer requests than `max_requests`, never more than that and the jitter; the same for the same worker."""
    assert least <= quota(number, least, jitter) <= least + jitter
    assert quota(number, least, jitter) == quota(number, least, jitter)


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], 100),  # nobody: the latest
        ([100], 90),
        ([100, 90], 95),
        ([100, 90, 95], 97.5),
        ([94], 100),
        ([50, 200], 100),
        ([100, 100, 100], 90),
    ],
)
def test_the_place_that_is_farthest_from_all(taken, expected):
    """Between 90 and 100 it is where the nearest other is farthest, and the later of two that are as good."""
    assert farthest(90, 100, taken) == expected


@given(st.lists(st.floats(0, 100), max_size=40))
def test_there_is_always_a_distance(taken):
    """With n others the nearest is at least a 2n-th of the width away."""
    at = farthest(40, 50, taken)
    assert 40 <= at <= 50
    assert all(abs(at - each) >= 10 / (2 * len(taken)) - 1e-9 for each in taken)

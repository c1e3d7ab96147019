"""What several test files share: the two fronts, and models in files as users write them."""

from __future__ import annotations

import pytest

FRONTS = ("asgi", "wsgi")


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest) -> str:
    """One of the two fronts: every test that takes it runs over both."""
    return str(request.param)

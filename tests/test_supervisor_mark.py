"""The mark that everything has which an instance has started."""

from __future__ import annotations

import resource
import subprocess
from contextlib import contextmanager

import pytest

from prefork.supervisor import mark
from prefork.supervisor.environment import MARK
from running import wait_until

RUN = "/some/where/run:"


@contextmanager
def process(**environment):
    with subprocess.Popen(["sleep", "600"], env={"PATH": "/usr/bin:/bin", **environment}) as child:
        try:
            yield child.pid
        finally:
            child.kill()


@pytest.mark.parametrize("keeps", ["variable", "number"])
def test_either_mark_is_enough(keeps):
    """A descendant is known by its environment, and where that is empty by the number; other instances are told apart."""
    with process(**({MARK: f"{RUN}7.1"} if keeps == "variable" else {})) as pid:
        if keeps == "number":
            mark.put(pid, f"{RUN}7.1")
        # The kernel shows a new program's environment a moment after it has begun.
        wait_until(lambda: mark.is_on(pid, f"{RUN}7.1"), "the mark")
        assert not mark.is_on(pid, f"{RUN}7.2")
        assert mark.is_under(pid, RUN)
        assert not mark.is_under(pid, "/some/where/else:")


def test_nobody_has_it_by_chance():
    """A process of somebody else, one with a limit of its own, and one that is gone."""
    with process() as pid:
        assert not mark.is_under(pid, RUN)
        resource.prlimit(pid, resource.RLIMIT_RSS, (1 << 30, 1 << 31))
        mark.put(pid, f"{RUN}7.1")
        assert resource.prlimit(pid, resource.RLIMIT_RSS) == (1 << 30, 1 << 31)
        assert not mark.is_under(pid, RUN)
    mark.put(pid, f"{RUN}7.1")
    assert not mark.is_on(pid, f"{RUN}7.1")

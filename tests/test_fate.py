"""What has become of a worker, in words."""

from __future__ import annotations

import signal

import pytest

from prefork.processes.fate import before_loading, cause, fate


@pytest.mark.parametrize(
    ("status", "silent", "words"),
    [
        (3 << 8, 0, "left with status 3"),
        (signal.SIGSEGV, 0, "was killed by SIGSEGV"),
        (signal.SIGKILL, 0, "was killed by SIGKILL (out of memory?)"),
        (signal.SIGKILL, 60, "was ended after 60 s of silence (timeout)"),
        (1 << 8, 60, "was ended after 60 s of silence (timeout)"),
        (signal.SIGSEGV | 0x80, 0, "was killed by SIGSEGV"),  # with a core
    ],
)
def test_how_a_worker_has_ended(status, silent, words):
    """Want of memory is guessed at only where the arbiter has not killed the worker itself."""
    assert fate(status, silent=silent) == words


def test_an_end_before_loading():
    """It says where the worker was, where that is known, and which limit it was over, where it was."""
    assert before_loading(3 << 8, "", 0) == "left with status 3 before its model had loaded"
    at = before_loading(signal.SIGSEGV, "A.py:3 in load", 0)
    assert at == "was killed by SIGSEGV before its model had loaded, at A.py:3 in load"
    hung = before_loading(signal.SIGKILL, "A.py:3 in load", 600)
    assert hung == "had not loaded its model in 600 s (load_timeout); it hung at A.py:3 in load"
    assert before_loading(signal.SIGKILL, "", 0.5) == "had not loaded its model in 0.5 s (load_timeout)"


def test_the_cause_of_a_death_for_metrics():
    """One of a few words: `exit`, or a signal's name."""
    assert [cause(3 << 8), cause(signal.SIGKILL), cause(signal.SIGSEGV | 0x80)] == ["exit", "SIGKILL", "SIGSEGV"]
    assert cause(signal.SIGRTMIN + 2) == "signal"

"""What has become of a worker, in words for the log and for metrics."""

from __future__ import annotations

import os
import signal


def cause(status: int) -> str:
    """`exit`, or the name of the signal."""
    if not os.WIFSIGNALED(status):
        return "exit"
    number = os.WTERMSIG(status)
    return signal.Signals(number).name if number in set(signal.Signals) else "signal"


def fate(status: int, *, silent: float = 0.0) -> str:
    """How a worker has ended, as a predicate.

    status: as `waitpid` has it. silent: seconds of silence for which the arbiter itself has ended it; 0 where it did not.
    """
    code = os.waitstatus_to_exitcode(status)
    if silent:
        return f"was ended after {silent:g} s of silence (timeout)"
    if code >= 0:
        return f"left with status {code}"
    if -code == signal.SIGKILL:
        return "was killed by SIGKILL (out of memory?)"
    return f"was killed by {signal.Signals(-code).name if -code in signal.valid_signals() else f'signal {-code}'}"


def before_loading(status: int, where: str, limit: float) -> str:
    """The same of one that had not loaded its model.

    where: the line that it was at, where it has said so. limit: the `load_timeout` for which the arbiter has ended it, else 0.
    """
    if limit:
        at = f"; it hung at {where}" if where else ""
        return f"had not loaded its model in {limit:g} s (load_timeout){at}"
    return f"{fate(status)} before its model had loaded{f', at {where}' if where else ''}"

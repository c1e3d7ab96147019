"""Signals in a model's process: those of a terminal, and TERM, mean nothing to it, and everything to what it starts.

To ignore them would be inherited, and a child that `terminate()` cannot end is one too many. A handler is not: exec puts it
back, and after a fork `forks` does.
"""

from __future__ import annotations

import signal
from types import FrameType

from prefork import forks

_UNHEARD = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
)


def deaf() -> None:
    """Pay no heed to them from now on, in this process only."""
    for each in _UNHEARD:
        signal.signal(each, _nothing)
        signal.siginterrupt(each, False)  # noqa: FBT003 - the signature is signal's
    forks.give_signals_back(_UNHEARD, lambda handler: handler is _nothing)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass

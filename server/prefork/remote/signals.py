"""Signals in a model's process: those of a terminal, and TERM, mean nothing to it, and everything to what it starts.

To ignore them would be inherited, and a child that `terminate()` cannot end is one too many. A handler is not: exec puts it
back, and after a fork this does.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from types import FrameType

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
    os.register_at_fork(before=_wait, after_in_parent=_go_on, after_in_child=_hear)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass


class _Mask(threading.local):
    before: Iterable[int] = ()


_mask = _Mask()


def _wait() -> None:
    # What is sent to a child that has just begun has to find its handlers set; Python drops what comes before.
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, _UNHEARD)


def _go_on() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _hear() -> None:
    for each in _UNHEARD:
        if signal.getsignal(each) is _nothing:
            signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    _go_on()

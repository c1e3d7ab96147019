"""The first moments of a forked child: no signal gets lost, none means what it meant to the arbiter, no orphan stays."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
_ENDING = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGABRT, signal.SIGCHLD)
# A terminal's Ctrl-C reaches every process: the arbiter then tells its children. USR1 would end a child that has no log
# to reopen yet, and TTIN and TTOU would stop it.
_IGNORED = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTTIN, signal.SIGTTOU, signal.SIGWINCH)


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back while forking: one that comes before the child has its own handlers would be lost in the arbiter's."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [*_ENDING, *_IGNORED])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def settle() -> None:
    """Give signals the meaning that they have for a process with nothing to finish: TERM ends it. Then let them through."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_DFL)
    for each in _IGNORED:
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*_ENDING, *_IGNORED])


def die_with(parent: int, how: signal.Signals) -> None:
    """Have the kernel send `how` to this process when its parent dies. Forgotten by the kernel when the user id changes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(how), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)

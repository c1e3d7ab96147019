"""Children that the model's code forks: one that comes back into the server's code ends there.

It would else answer its parent's request once more, and go on as a second server on the same sockets. A child that leaves by
itself, as multiprocessing's do, never comes by here. In a child signals mean again what they mean to every program of Python's: a
pool ends its processes by TERM, and who waits for one that does not heed it waits for ever.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable
from functools import cache, partial
from typing import Any, NoReturn

log = logging.getLogger("prefork")

STATUS = 70
"""The exit status of a child that came back. EX_SOFTWARE of sysexits.h."""

is_child = False
"""Whether this process is a child of one that serves."""


class _Forking(threading.local):
    loop: asyncio.AbstractEventLoop | None = None
    mask: Iterable[int] = ()


_forking = _Forking()


def watch() -> None:
    """This process serves: whatever is forked from now on is a child of the model's code."""
    global is_child  # noqa: PLW0603 - it is said of the whole process
    is_child = False
    _register()


def give_signals_back(taken: Collection[signal.Signals], is_ours: Callable[[Any], bool] = lambda _: True) -> None:
    """Have children heed signals that this process has taken for itself. is_ours: whether a handler is the server's and not the model's."""
    os.register_at_fork(
        before=partial(_hold, taken), after_in_parent=_let_through, after_in_child=partial(_heed, taken, is_ours)
    )


def end(error: BaseException | None = None) -> None:
    """End this process if it is such a child. error: see `leave`."""
    if is_child:
        leave(error)


def leave(error: BaseException | None = None) -> NoReturn:
    """End this child. error: what its code has raised; a sys.exit() keeps its status."""
    if isinstance(error, SystemExit):
        code = error.code
        os._exit(code if isinstance(code, int) else int(code is not None))
    log.error(
        "a child process that the model's code has forked came back into the server, and ends; it has to leave by os._exit()",
        exc_info=error,
    )
    os._exit(STATUS)


@cache
def _register() -> None:
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_begin)


def _before() -> None:
    # Asked here: in the child no loop counts as running.
    _forking.loop = asyncio._get_running_loop()  # noqa: SLF001 - `get_running_loop` raises where there is none


def _after() -> None:
    _forking.loop = None


def _begin() -> None:
    global is_child  # noqa: PLW0603 - as above
    is_child = True
    loop, _forking.loop = _forking.loop, None
    if loop is not None:  # a child that awaits goes on with the loop, and whatever is on it, of its parent
        loop.call_soon(leave)


def _hold(taken: Collection[signal.Signals]) -> None:
    # One that comes before the child has its own handlers would be heeded, or dropped, by the parent's.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, taken)


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _heed(taken: Collection[signal.Signals], is_ours: Callable[[Any], bool]) -> None:
    signal.set_wakeup_fd(-1)  # the parent's: its loop would take a signal of the child's for its own
    for each in taken:
        if is_ours(signal.getsignal(each)):
            signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    _let_through()

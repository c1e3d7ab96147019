"""How the arbiter ends where the user's code runs in it: in the middle of that, and in spite of what it has left behind."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prefork.failure import Passing


class Stopped(Passing):
    """A signal to stop came while the model was under construction."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def interruptible(restore: Callable[[], None]) -> Iterator[None]:
    """Have a signal to stop raise Stopped out of the user's code. restore: gives the signals their handlers back."""

    def interrupt(number: int, _frame: object) -> None:
        raise Stopped(number)

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        restore()


def ended(status: int) -> int:
    """The status; but where a preloaded class has left a thread for which Python would wait, this is the end at once."""
    if any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread()):
        logging.shutdown()
        os._exit(status)
    return status

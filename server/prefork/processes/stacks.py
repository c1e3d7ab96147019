"""The Python stacks of every thread of this process, written where the log goes, even while a thread holds the interpreter."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys


def dump(logger: logging.Logger) -> None:
    """Write them now."""
    faulthandler.dump_traceback(_descriptor(logger), all_threads=True)


def dump_to(descriptor: int) -> None:
    """Until `dump_at_the_end`: write them into that file when ABRT comes, which then does nothing more, or on a crash."""
    signal.signal(signal.SIGABRT, lambda _number, _frame: None)
    faulthandler.enable(descriptor, all_threads=True)


def dump_at_the_end(logger: logging.Logger) -> None:
    """Write them when the arbiter ends this process with ABRT, or a crash does. The handler that ABRT has now is called then."""
    faulthandler.disable()  # where it is on already, enabling it would leave ABRT as it is
    # A duplicate: when the log is reopened, the number of the old descriptor may become a client's connection.
    faulthandler.enable(os.dup(_descriptor(logger)), all_threads=True)


def _descriptor(logger: logging.Logger) -> int:
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.flush()
            try:
                return int(handler.stream.fileno())
            except (OSError, ValueError, AttributeError):
                continue
    return sys.__stderr__.fileno() if sys.__stderr__ is not None else 2

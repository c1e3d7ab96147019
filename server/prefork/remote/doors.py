"""Where connections come in: the listening sockets that an instance shares with its siblings."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time
from collections.abc import Sequence
from typing import Any, NoReturn

log = logging.getLogger("prefork")

BREATH = 0.05
"""Seconds that are waited when there are no descriptors: whoever has some gives them back."""

_ACCEPTED = (int(socket.AF_UNIX), int(socket.SOCK_STREAM), 0)
_new_socket = socket.SocketType
"""As `socket.socket`, without its part in Python, which is nothing that is needed here."""

_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_SHUT = select.EPOLLHUP | select.EPOLLERR
_SILENT = 10.0
"""Seconds between two lines that say so."""


class Doors:
    """The listening sockets of an instance, the most urgent first, for one thread or loop.

    Level-triggered and exclusive: of all threads that wait, in all processes, the kernel wakes one for a connection. A loop that has
    this among its own descriptors may be woken beside one of them, in vain.
    """

    def __init__(self, listeners: Sequence[socket.socket], wake: int = -1) -> None:
        self._listeners: Sequence[Any] = listeners
        self._poll = select.epoll()
        self._said = 0.0
        self._was_there = False
        for each in listeners:
            self._poll.register(each, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        if wake >= 0:
            self._poll.register(wake, select.EPOLLIN)

    def fileno(self) -> int:
        """What can be read when somebody may be there."""
        return self._poll.fileno()

    def take(self, seconds: float | None = None) -> socket.SocketType | None:
        """The next connection, if one comes within so many seconds (None: for ever) and nobody wakes this. Raises OSError."""
        if self._was_there:  # others are likely to be there as well: that spares a look at the doors
            found = self.accept()
            if found is not None:
                return found
        events = self._poll.poll(seconds)
        if not events:
            self._was_there = False
            return None
        for _, event in events:
            if event & _SHUT:
                raise OSError(errno.EINVAL, "a listening socket is shut down")
        found = self.accept()
        self._was_there = found is not None
        return found

    def accept(self) -> socket.SocketType | None:
        """A connection that waits; None when there is none. Raises OSError."""
        for each in self._listeners:
            try:
                return _new_socket(*_ACCEPTED, each._accept()[0])  # noqa: SLF001 - what `accept` is made of
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
                self._say(error)
                raise Short from None
        return None

    def close(self) -> None:
        """Wait for nothing more."""
        self._poll.close()

    def _say(self, error: OSError) -> None:
        if time.monotonic() - self._said > _SILENT:
            self._said = time.monotonic()
            log.error("no connection can be taken: %s; the next try is in %g s", error, BREATH)


class Short(Exception):
    """There is no descriptor, or no memory, for a connection."""


class Wake:
    """What wakes every thread that waits at its doors, for good."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.is_set = False

    def set(self) -> None:
        """Wake them."""
        self.is_set = True
        os.eventfd_write(self.descriptor, 1)


def give_up(error: BaseException) -> NoReturn:
    """The end of this process, when it can take nothing more: another one can."""
    log.critical("connections cannot be taken any more; this process ends", exc_info=error)
    os._exit(70)

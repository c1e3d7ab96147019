"""Where requests come in: the listening sockets that an instance shares with its siblings, and connections that have stayed.

A connection can stay only where there is a single one who takes: then it is all the same whether a request waits there or in the
backlog. None stays while somebody waits in the backlog, or those outside would wait behind those inside.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn

from prefork import standard
from prefork.remote.status import GAVE_UP
from prefork.repository.config import ModelConfig

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

_LISTENER = -1
_STAYED = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
"""One event, and then none until the connection is kept again: a child that the model has forked may hold it open after its end."""

_STANDARD = 2
"""The last of the numbers that a connection must not have."""

_PART = 8
_LONGEST = 86400.0
"""Seconds of one look: the kernel's are milliseconds in 32 bits. Who has longer looks again."""
_MOST_STAYING = 64


def room(config: ModelConfig, listeners: int, takers: int) -> int:
    """Connections that may stay: an eighth of what may wait, since what waits there is not counted by the backlog.

    takers: threads of a process that take from so many listeners.
    """
    if listeners * takers * config.instances * max(1, len(config.devices)) > 1:
        return 0
    most = config.max_queue if config.batching is None else config.batching.queue(1).max_queue or config.max_queue
    return min(_MOST_STAYING, most // _PART) if most else _MOST_STAYING


class Doors:
    """The listening sockets of an instance, the most urgent first, for one thread or loop. room: connections that may stay.

    has_stayed: of the connection that was taken last.

    Level-triggered and exclusive: of all threads that wait, in all processes, the kernel wakes one for a connection. A loop that has
    this among its own descriptors may be woken beside one of them, in vain.
    """

    def __init__(self, listeners: Sequence[socket.socket], wake: int = -1, room: int = 0) -> None:
        self._listeners: Sequence[Any] = listeners
        self.has_stayed = False
        self._wake = wake
        self._room = room
        self._staying: dict[int, socket.SocketType] = {}
        self._ready: deque[int] = deque()
        self._next: socket.SocketType | None = None
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
        """A connection with a request, if one comes within so many seconds (None: for ever) and nobody wakes this. Raises OSError."""
        if not self._ready:
            if self._was_there and not self._staying:  # others are likely to be there as well: that spares a look
                self.has_stayed = False
                found = self._accepted()
                if found is not None:
                    return found
            self._look(seconds)
        while self._ready:
            descriptor = self._ready.popleft()
            found = self._accepted() if descriptor == _LISTENER else self._staying.pop(descriptor, None)
            self.has_stayed = descriptor != _LISTENER
            if found is not None:
                return found
        return None

    def have_room(self) -> bool:
        """Whether a connection whose request is about to be answered may stay."""
        if len(self._staying) >= self._room:
            return False
        if self._was_there and _LISTENER not in self._ready:
            try:
                self._next = self._accepted()
            except (Short, OSError):  # who takes next is told
                return False
            if self._next is not None:
                self._ready.append(_LISTENER)
        return not self._was_there

    def keep(self, sock: socket.SocketType) -> None:
        """Wait for the next request of a connection that stays."""
        descriptor = sock.fileno()
        self._staying[descriptor] = sock
        try:
            self._poll.modify(descriptor, _STAYED)
        except FileNotFoundError:  # it has come just now
            self._poll.register(descriptor, _STAYED)

    def _accepted(self) -> socket.SocketType | None:
        found, self._next = self._next, None
        found = found or self.accept()
        self._was_there = found is not None
        return found

    def _look(self, seconds: float | None) -> None:
        """See who is there. They are served in this order, and all of them before those that come later."""
        self._was_there = False
        for descriptor, event in self._poll.poll(None if seconds is None else min(seconds, _LONGEST)):
            if descriptor in self._staying:
                self._ready.append(descriptor)
            elif descriptor == self._wake:
                self._room = 0
            elif not self._was_there:
                if event & _SHUT:
                    raise OSError(errno.EINVAL, "a listening socket is shut down")
                self._was_there = True
                self._ready.append(_LISTENER)

    def accept(self) -> socket.SocketType | None:
        """A connection that waits; None when there is none. Raises OSError."""
        for each in self._listeners:
            try:
                number = each._accept()[0]  # noqa: SLF001 - what `accept` is made of
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
                self._say(error)
                raise Short from None
            return _new_socket(*_ACCEPTED, number if number > _STANDARD else standard.above(number))
        return None

    def close(self) -> None:
        """Wait for nothing more."""
        self.clear()
        self._poll.close()

    def clear(self) -> None:
        """Hang up those that wait here. A request that has come meanwhile is unread: its sender sends it to somebody else."""
        for each in (*self._staying.values(), self._next):
            if each is not None:
                each.close()
        self._staying.clear()
        self._next = None

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
    log.critical("this process ends: it can serve no more", exc_info=error)
    os._exit(GAVE_UP)

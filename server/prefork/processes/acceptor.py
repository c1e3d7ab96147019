"""Accepting on an event loop, one connection at a time, and only while it is this worker's turn.

While it is not, the reader is off the loop and the listener is looked at every millisecond, for as long as somebody
waits there; an idle server has no timer.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

from prefork.processes import balance
from prefork.processes.listener import waiting

_HOLD = 0.001
_REST = 1.0
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

log = logging.getLogger("prefork")


class Acceptor:
    """Accepts from one listening socket. `admit` is given each connection's socket, which does not block."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: Any,
        slot: balance.Slot,
        gate: balance.Gate,
        admit: Callable[[socket.socket], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._slot = slot
        self._gate = gate
        self._admit = admit
        self._is_open = False
        self._holding: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin."""
        self._is_open = True
        self._loop.add_reader(self._listener.fileno(), self._readable)

    def close(self, *, take_rest: bool) -> None:
        """End; with `take_rest`, accept whoever waits, because nobody comes after this worker."""
        self._is_open = False
        self._loop.remove_reader(self._listener.fileno())
        while take_rest and self._accept():
            pass

    def nudge(self) -> None:
        """A connection has gone: look whose turn it is without waiting."""
        if self._holding is not None:
            self._holding.cancel()
            self._look()

    def _readable(self) -> None:
        self._slot.turn()
        if self._gate.may_accept():
            self._accept()
        else:
            self._loop.remove_reader(self._listener.fileno())
            self._holding = self._loop.call_later(_HOLD, self._look)

    def _look(self) -> None:
        self._holding = None
        if not self._is_open:
            return
        self._slot.turn()
        comes = waiting(self._listener)
        if comes and not self._gate.may_accept():
            self._holding = self._loop.call_later(_HOLD, self._look)
            return
        self._loop.add_reader(self._listener.fileno(), self._readable)
        if comes:
            self._accept()
        else:
            self._gate.calm()

    def _accept(self) -> bool:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False  # another worker was faster, or the client has left again
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._rest(error)
            return False
        client.settimeout(0.0)
        self._admit(client)
        return True

    def _rest(self, error: OSError) -> None:
        log.error("no connection can be accepted for a second: %s", error.strerror)
        self._loop.remove_reader(self._listener.fileno())
        self._slot.unsay(balance.ACCEPTING)
        self._loop.call_later(_REST, self._resume)

    def _resume(self) -> None:
        if self._is_open:
            self._slot.say(balance.ACCEPTING)
            self._loop.add_reader(self._listener.fileno(), self._readable)

"""A client's socket as the WSGI workers see it: one that sends slowly, or never closes its end, keeps nobody waiting."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from prefork.wsgi import GONE, WAITED

_SLOWEST = 1024
"""Bytes a second that a request has to come at in the long run, once `read_timeout` is over."""

_poll = select.poll  # gevent puts one of its own in its place, which waits for its loop


class Guest:
    """A socket whose `recv` raises TimeoutError for a request that takes longer than `seconds`, and a KiB a second.

    parted: where the worker does not wait for its client to close, called with the socket instead of closing it.
    """

    def __init__(self, sock: Any, seconds: float, parted: Callable[[Any], None] | None = None) -> None:
        self._sock = sock
        self._seconds = seconds
        self._parted = parted
        self._is_parting = False
        self.begin()

    def begin(self) -> None:
        """The next byte is the first of a request."""
        self._begun: float | None = None
        self._received = 0

    def recv(self, size: int, *flags: int) -> bytes:
        """As a socket's. Raises TimeoutError."""
        if self._is_parting:
            return b""
        data = self._recv(size, *flags) if self._seconds and self._begun else bytes(self._sock.recv(size, *flags))
        self._begun = self._begun or time.monotonic()
        self._received += len(data)
        return data

    def _recv(self, size: int, *flags: int) -> bytes:
        assert self._begun is not None
        left = self._begun + self._seconds + self._received / _SLOWEST - time.monotonic()
        before = self._sock.gettimeout()
        if left > 0:
            self._sock.settimeout(min(left, self._seconds) if before is None else min(before, left, self._seconds))
            try:
                return bytes(self._sock.recv(size, *flags))
            except TimeoutError:
                pass
            finally:
                with suppress(OSError):
                    self._sock.settimeout(before)
        raise TimeoutError(f"{self._received} bytes in {time.monotonic() - self._begun:.3g} s")

    def shutdown(self, how: int) -> None:
        """As a socket's. After it nothing is received, where the worker parts without waiting."""
        self._sock.shutdown(how)
        self._is_parting = self._parted is not None

    def settimeout(self, seconds: float | None) -> None:
        """As a socket's."""
        if not self._is_parting:
            self._sock.settimeout(seconds)

    def close(self) -> None:
        """As a socket's; or have the worker close it later."""
        if self._is_parting and self._parted is not None:
            self._parted(self._sock)
        else:
            self._sock.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def has_gone(sock: Any) -> bool:
    """Whether the client has hung up. One that has only said that it sends no more counts as gone."""
    try:
        poll = _poll()
        poll.register(sock.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True


def received_by(app: Callable[..., Any], board: Any, waited: Callable[[], float] = float) -> Callable[..., Any]:
    """A WSGI application, told what its worker knows of the client.

    waited: the seconds for which the request at hand waited for a thread.
    """

    def call(environ: dict[str, Any], start_response: Any) -> Any:
        environ[WAITED] = waited()
        client = environ.get("gunicorn.socket")
        if client is not None:
            environ[GONE] = partial(has_gone, client)
        response = getattr(start_response, "__self__", None)
        if board.draining and response is not None and hasattr(response, "force_close"):
            response.force_close()
        return app(environ, start_response)

    return call

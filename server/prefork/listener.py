"""Listening sockets that are bound at once and listen only when the first worker is ready.

An address that is taken is known before anything loads, and a port that is open has somebody behind it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterable
from typing import Any

from gunicorn import sock

from prefork.errors import StartupError

_INHERIT = sock.create_sockets
_WHY: dict[int | None, str] = {
    errno.EADDRINUSE: "is in use by another process; stop it or choose another address with --bind or --port",
    errno.EADDRNOTAVAIL: "is not an address of this machine",
    errno.EACCES: "may not be bound by this user; ports under 1024 are root's",
}


class AddressError(StartupError):
    """The address cannot be listened on."""

    exit_code = 1


class _Bound:
    @staticmethod
    def _is_listening(_: Any) -> bool:
        return True  # gunicorn listens on what does not


class _Tcp(_Bound, sock.TCPSocket):
    pass


class _Tcp6(_Bound, sock.TCP6Socket):
    pass


class _Unix(_Bound, sock.UnixSocket):
    pass


_KINDS = {sock.TCPSocket: _Tcp, sock.TCP6Socket: _Tcp6, sock.UnixSocket: _Unix}


def create_sockets(conf: Any, log: Any, fds: Iterable[int] | None = None) -> list[Any]:
    """In the place of `gunicorn.sock.create_sockets`: bind each address, once. Raises AddressError.

    Sockets that are inherited, from systemd or from an arbiter before this one, stay as they are.
    """
    if fds or any(isinstance(address, int) for address in conf.address):
        inherited: list[Any] = _INHERIT(conf, log, fds)
        return inherited
    for name in (conf.certfile, conf.keyfile):
        if name and not os.path.exists(name):  # noqa: PTH110 - a name out of gunicorn's settings
            raise AddressError(f"{name} does not exist")
    bound: list[Any] = []
    try:
        bound.extend(_bind(address, conf, log) for address in conf.address)
    except AddressError:
        sock.close_sockets(bound)
        raise
    return bound


def _bind(address: Any, conf: Any, log: Any) -> Any:
    try:
        return _KINDS[sock._sock_type(address)](address, conf, log)  # noqa: SLF001 - gunicorn has no other name for it
    except (OSError, ValueError) as error:
        raise _refused(address, error) from None


def _refused(address: Any, error: Exception) -> AddressError:
    name = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else f"unix:{address}"
    code = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    return AddressError(f"{name} {_WHY.get(code, f'cannot be bound: {error}')}")


def listen(listeners: Iterable[Any], backlog: int) -> None:
    """Open the ports, unless they are open. Raises AddressError where another process was faster.

    The kernel lets two processes bind one port as long as neither listens.
    """
    for listener in listeners:
        if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            continue
        try:
            listener.listen(backlog)
        except OSError as error:
            raise _refused(listener.getsockname(), error) from None


def waiting(listener: Any) -> bool:
    """Whether a connection waits to be accepted."""
    poll = select.poll()
    poll.register(listener.fileno(), select.POLLIN)
    return bool(poll.poll(0))

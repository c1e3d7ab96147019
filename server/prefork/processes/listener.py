"""Listening sockets that are bound at once and listen only when the first worker is ready.

An address that is taken is known before anything loads, and a port that is open has somebody behind it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from gunicorn import sock

from prefork.errors import StartupError

_INHERIT = sock.create_sockets
_WHY: dict[int | None, str] = {
    errno.EADDRINUSE: "is in use by another process; stop it or choose another address with --bind or --port",
    errno.EADDRNOTAVAIL: "is not an address of this machine",
    errno.EACCES: "may not be bound by this user; ports under 1024 are root's",
}


_SO_ATTACH_FILTER = 26
_DROP_SYN = (
    (0x30, 0, 0, 13),  # load byte 13 of the TCP header, its flags
    (0x54, 0, 0, 0x12),  # keep SYN and ACK of them
    (0x15, 0, 1, 0x02),  # SYN alone opens a connection
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # pass
)
"""A classic BPF program; each line is a `struct sock_filter`: code, jump if true, jump if false, operand."""


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
        if is_open((listener,)):
            continue
        try:
            listener.listen(backlog)
        except OSError as error:
            raise _refused(listener.getsockname(), error) from None


def is_open(listeners: Iterable[Any]) -> bool:
    """Whether one of the ports is open, whichever process has opened it."""
    return any(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) for listener in listeners)


def limit_silence(listeners: Iterable[Any], seconds: float) -> None:
    """Have the kernel close connections whose client takes nothing of what waits for it for so long; 0: never.

    Connections inherit it. A Unix socket has no such limit.
    """
    for listener in listeners:
        if listener.family in {socket.AF_INET, socket.AF_INET6}:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def shut_out(listeners: Iterable[Any]) -> None:
    """Take no new connection, from this moment on and for every process that has the socket; those in the backlog stay.

    Closing does that only when the last process closes, and then resets whoever came since its last look at the backlog.
    So the kernel is given a filter that drops the packets that open a connection: their clients try again within a second, and
    are refused once the socket is closed.
    """
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in _DROP_SYN))
    option = struct.pack("HL", len(_DROP_SYN), ctypes.addressof(program))
    for listener in listeners:
        if listener.family in {socket.AF_INET, socket.AF_INET6}:
            with suppress(OSError):
                listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)


def waiting(listener: Any) -> bool:
    """Whether a connection waits to be accepted."""
    poll = select.poll()
    poll.register(listener.fileno(), select.POLLIN)
    return bool(poll.poll(0))

"""Descriptors 0, 1 and 2, which are open at all times: who prints would else print into whatever got such a number.

A server may be started with them closed, and a model's code may close them. What was closed is /dev/null from then on; where a
process has kept them, output goes where it went before.
"""

from __future__ import annotations

import fcntl
import os
import sys

_LAST = 2
_kept: dict[int, int] = {}


def keep() -> None:
    """Open what is closed, and remember where output goes now."""
    mend()
    for number in (1, 2):
        _kept[number] = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _LAST + 1)


def mend() -> None:
    """Open what is closed. Two system calls where nothing is."""
    while (
        number := os.open(os.devnull, os.O_RDWR)
    ) <= _LAST:  # the kernel gives the lowest that is free, and to one thread only
        _reopened(number)
    os.close(number)


def above(descriptor: int) -> int:
    """A descriptor that has just been opened, or a copy under another number where it has got one of the three."""
    if descriptor > _LAST:
        return descriptor
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LAST + 1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    os.close(null)
    _reopened(descriptor)
    return copy


def name_streams() -> None:
    """Open what is closed, and give Python its streams, which it makes None at the start of a process where they are closed."""
    mend()
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - it stays open


def _reopened(number: int) -> None:
    """Of one of the three that is /dev/null now."""
    if number in _kept:
        os.dup2(_kept[number], number)
    else:
        os.set_inheritable(number, True)  # noqa: FBT003 - the signature is os's

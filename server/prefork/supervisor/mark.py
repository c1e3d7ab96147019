"""The mark of an instance, which all that it starts inherits: `<run directory>:<supervisor>.<number>`, in two places.

It is a variable of the environment, and a number in RLIMIT_RSS, which no Linux since 2.4.30 heeds: a daemon that has left its
session and its parents, and emptied its environment, still has that.

    bit 60    set, so that nobody takes it for a limit
    30-59     a hash of the run directory
    0-29      a hash of the whole mark
"""

from __future__ import annotations

import contextlib
import resource
import zlib
from pathlib import Path

from prefork.supervisor import kernel
from prefork.supervisor.environment import MARK

_HASH = (1 << 30) - 1
_LINE = "Max resident set"


def put(pid: int, mark: str) -> None:
    """Give a child its number, where the operator has set no such limit."""
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.prlimit(pid, resource.RLIMIT_RSS)
        resource.prlimit(pid, resource.RLIMIT_RSS, (_number(mark), most))


def is_on(pid: int, mark: str) -> bool:
    """Whether a process descends from the instance with this mark."""
    return kernel.variable(pid, MARK) == mark or _found(pid) == _number(mark)


def is_under(pid: int, run: str) -> bool:
    """Whether a process descends from any instance of a run directory. run: what its marks begin with, `<run directory>:`."""
    return kernel.variable(pid, MARK).startswith(run) or _found(pid) >> 30 == _number(run) >> 30


def _number(mark: str) -> int:
    run = mark[: mark.rindex(":") + 1]
    return 1 << 60 | (zlib.crc32(run.encode()) & _HASH) << 30 | zlib.crc32(mark.encode()) & _HASH


def _found(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return 0
    said = next((each[len(_LINE) :].split()[0] for each in lines if each.startswith(_LINE)), "")
    return int(said) if said.isdecimal() else 0

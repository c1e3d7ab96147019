"""What a process died of, in words."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

from prefork.remote.starting import NEAR
from prefork.remote.status import GAVE_UP, STARVED

_LEFT = {GAVE_UP: "could serve no more and has ended", STARVED: "has run out of memory"}


class Death(msgspec.Struct, frozen=True):
    """The end of a process.

    code: as `os.waitstatus_to_exitcode` has it, negative for a signal. peak: the most bytes of memory that it had.
    limit: the bytes that it might have, 0 for any. asked: whether we have ended it. starved: whether the kernel has killed
    processes for want of memory since it was started.
    """

    code: int
    peak: int = 0
    limit: int = 0
    asked: bool = False
    starved: bool = False

    @property
    def words(self) -> str:
        """One phrase, for `... <words>`."""
        how = _LEFT.get(self.code) or (
            f"left with status {self.code}" if self.code >= 0 else f"was killed by {name(-self.code)}"
        )
        if self.code == STARVED and self.limit:
            return f"has run out of memory: memory_limit is {self.limit} bytes"
        if self.asked or not self._is_hunger:
            return how
        signs = [
            "the kernel has killed for want of memory" if self.starved else "",
            f"limit {size(self.limit)}" if self.limit else "",
            f"peak {size(self.peak)}",
        ]
        return f"{how}, perhaps out of memory: {', '.join(filter(None, signs))}"

    @property
    def has_said_why(self) -> bool:
        """Whether the last line that it has printed is the reason."""
        return self.code == GAVE_UP

    @property
    def _is_hunger(self) -> bool:
        if self.code == -signal.SIGKILL:
            return True
        is_near = self.limit > 0 and self.peak >= NEAR * self.limit
        return is_near and self.code != 0


def name(number: int) -> str:
    """A signal's name."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def size(count: int) -> str:
    """Bytes for people: 1.97 GiB."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"


def starvations(path: str = "/proc/vmstat") -> int:
    """How often this kernel has killed a process for want of memory."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def reap(pid: int) -> tuple[int, int] | None:
    """The exit code of an own child that has ended, and the most bytes of memory it had; None where it still runs.

    The kernel counts what its parent had at the time of its start as well, some tens of MiB.
    """
    try:
        done, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return 0, 0
    return (os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10) if done else None

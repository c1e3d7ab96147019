"""A worker's heartbeat in memory: the modification time of a file that has no name and no directory.

Its text is free for what the worker's stacks were when it could not load. It has the interface of gunicorn's `WorkerTmp`, which wants a writable temporary directory.
"""

from __future__ import annotations

import os
import time
from typing import Any


class Heartbeat:
    """The time at which a worker last showed that it lives; the arbiter kills one that is silent for `timeout`."""

    def __init__(self, cfg: Any) -> None:
        self._fd = os.memfd_create("prefork-heartbeat")
        if cfg.uid != os.geteuid() or cfg.gid != os.getegid():
            os.fchown(self._fd, cfg.uid, cfg.gid)

    def notify(self) -> None:
        """Show that the worker lives."""
        now = time.monotonic()
        os.utime(self._fd, (now, now))

    def last_update(self) -> float:
        """The monotonic time of the last beat, in seconds.

        Before the first it is the wall clock's, far in the future: a model may load for as long as it needs.
        """
        return os.fstat(self._fd).st_mtime

    def last_words(self) -> str:
        """What was written into the file."""
        return os.pread(self._fd, 1 << 20, 0).decode(errors="replace")

    def fileno(self) -> int:
        """The file descriptor."""
        return self._fd

    def close(self) -> None:
        """Close the file; more than once does no harm."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

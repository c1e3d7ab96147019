"""Starts a program in a session of its own, with exactly the descriptors that it is to have. It is never a copy of this process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator, Mapping, Sequence

_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ)


def spawn(arguments: Sequence[str], environment: Mapping[str, str], descriptors: Mapping[int, int]) -> int:
    """The id of the new process, which leads a session and a group of its own. Raises OSError where it cannot be started.

    descriptors: the number that it knows each by, and this process's. Its standard input is empty.
    """
    with _above(descriptors) as sources:
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_DUP2, source, target) for target, source in sources.items()),
        ]
        return os.posix_spawn(
            arguments[0],
            list(arguments),
            environment,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=_RESET,
        )


@contextlib.contextmanager
def _above(descriptors: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """Copies above all the numbers that are asked for: else putting one in its place could close the next one's source."""
    least = max(descriptors) + 1
    with contextlib.ExitStack() as stack:
        copies = {}
        for target, source in descriptors.items():
            copies[target] = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, least)
            stack.callback(os.close, copies[target])
        yield copies

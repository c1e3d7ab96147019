"""The supervisor's parent, the arbiter: nothing outlives it, whatever the supervisor's loop is at.

The kernel sends TERM when it dies, which the loop heeds at once. A loop that hangs, say in the read of a file whose server has
gone, heeds nothing: then a thread, which waits for nobody but the parent, ends everything instead.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable

from prefork.supervisor import kernel

_PATIENCE = 2.0
"""Seconds that the loop has to end everything in good order."""
_LONGEST = 5.0
"""Seconds that ending what was started may take: it reads /proc, where a process that hangs in the kernel keeps its readers waiting."""
_GLANCE = 5000
"""Milliseconds between two looks at who the parent is: not every sandbox's pidfd tells of a death."""


def watch(parent: int, end: Callable[[], object]) -> bool:
    """Die with the parent from now on; whether it still lives. end: ends what this process has started, from any thread."""
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        return False
    if not kernel.die_with(parent, signal.SIGTERM):  # asked once it is set: a parent that has died before sends nothing
        return False
    threading.Thread(target=_outlast, args=(parent, descriptor, end), name="parent", daemon=True).start()
    return True


def _outlast(parent: int, descriptor: int, end: Callable[[], object]) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not poll.poll(_GLANCE) and os.getppid() == parent:
        pass
    time.sleep(_PATIENCE)
    try:
        ending = threading.Thread(target=end, name="ending", daemon=True)
        ending.start()
        ending.join(_LONGEST)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)  # instances die with it

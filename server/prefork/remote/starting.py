"""The beginning of what serves in a model's process: that there is room for it is known before the model is called ready."""

from __future__ import annotations

import resource
import threading
from collections.abc import Sequence
from pathlib import Path

from prefork.errors import ModelLoadError

NEAR = 0.8
"""The part of its limit from which on a process may have failed for want of memory."""


def start_all(threads: Sequence[threading.Thread]) -> None:
    """Start them. Raises ModelLoadError where the system gives no more."""
    for count, each in enumerate(threads):
        try:
            each.start()
        except RuntimeError as error:
            raise ModelLoadError(
                f"only {count} of {len(threads)} threads to serve with can be started, for want of memory or of processes "
                f"that the user may have: {error}"
            ) from None


def limit_memory(size: int) -> None:
    """Hold this process to so many bytes of its own; 0 is any. Raises ModelLoadError where it has more already.

    RLIMIT_DATA counts what it can write and nobody shares: the heap and private mappings. RLIMIT_AS would count address space, of
    which CUDA and thread stacks reserve far more than they use, and the memory that is shared with the HTTP workers.
    """
    if not size:
        return
    if size <= (has := held()):
        raise ModelLoadError(f"memory_limit is {size} bytes, and a process has {has} before there is a model in it")
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size if most == resource.RLIM_INFINITY else min(size, most), most))


def lift_memory() -> None:
    """Give back what `limit_memory` has taken: to say what has failed needs memory too."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def is_near(limit: int) -> bool:
    """Whether this process has nearly all that it may have; 0 is any."""
    return limit > 0 and held() >= NEAR * limit


def held() -> int:
    """The bytes that count for `limit_memory`."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0

"""The OpenMP runtimes that are mapped, and their number of threads.

GNU's keeps its pool of threads over a fork and waits for them at the end of the next parallel region, for ever, because
they are not there any more. A pool is opened by the first parallel region with more than one thread; so a region of
one thread leaves nothing that a fork could break. The number belongs to the thread that sets it: threads that start
later begin with that of OMP_NUM_THREADS as it was when the runtime was mapped.
"""

from __future__ import annotations

import ctypes
import os
import re

from prefork.guard.mappings import libraries

_RUNTIME = re.compile(r"lib(gomp|omp|iomp5)([-.][\w.-]*)?\.so[\d.]*$")
"""libgomp.so.1, libgomp-e985bcbb.so.1.0.0 as wheels bundle it, libomp.so.5, libiomp5.so."""


def runtimes() -> set[str]:
    """The paths of those that this process has mapped."""
    return {path for path in libraries() if _RUNTIME.match(os.path.basename(path))}  # noqa: PTH119 - asked for often


def threads(path: str) -> int:
    """How many threads this thread's next parallel region takes; 0 for what is no runtime after all."""
    try:
        return int(_opened(path).omp_get_max_threads())
    except (OSError, AttributeError):
        return 0


def set_threads(path: str, count: int) -> None:
    """Have this thread's parallel regions take so many."""
    _opened(path).omp_set_num_threads(ctypes.c_int(count))


def _opened(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)

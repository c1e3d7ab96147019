"""How much memory this process has, and how much of it a fork would unshare.

Pages stay shared after a fork until somebody writes to them. Reading an array writes nothing; using a Python object
counts a reference, in the object. Small objects live in the interpreter's own arenas, which it can count.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import msgspec

_ALLOCATED = re.compile(rb"# bytes in allocated blocks\s*=\s*([\d,]+)")


class Memory(msgspec.Struct, frozen=True):
    """Bytes. resident: all that is in memory; private: what no other process shares; objects: small Python objects."""

    resident: int
    private: int
    objects: int


def measured() -> Memory:
    """That of this process, now."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    sizes = {name: int(size.split()[0]) << 10 for name, _, size in (line.partition(":") for line in lines)}
    return Memory(sizes["Rss"], sizes["Private_Clean"] + sizes["Private_Dirty"], _objects())


def _objects() -> int:
    """Bytes of the objects in the interpreter's arenas; 0 where it uses none (PYTHONMALLOC=malloc)."""
    kept = os.dup(2)
    memory = os.memfd_create("prefork-malloc")
    sys.stderr.flush()
    os.dup2(memory, 2)
    try:
        sys._debugmallocstats()  # noqa: SLF001 - documented, and the only one to ask
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    told = os.pread(memory, 1 << 20, 0)
    os.close(memory)
    match = _ALLOCATED.search(told)
    return int(match[1].replace(b",", b"")) if match else 0

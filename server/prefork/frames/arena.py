"""Memory that two processes share for large tensors: anonymous, mapped once, used again and again.

An arena belongs to the HTTP worker that made it. It lies in a memfd, which no name leads to: nothing is left when all its
processes are killed. Whoever keeps an array of it keeps the arena from being used again: the arrays say so themselves, since all of
them hold the one memoryview that a weak reference watches.

A page that was never touched costs a fault, 0.25 us a KiB, and a new mapping makes all pages new; that is why arenas and mappings are kept.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import threading
import time
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np

from prefork.frames.layout import Frame

PAGE = mmap.PAGESIZE
SMALLEST = 1 << 20
MOST_IDLE = 256 << 20
"""Bytes of idle arenas that a pool keeps."""

MOST_LENT = 128
"""Arenas that a pool has lent at once, each of which is two descriptors; and their bytes."""

MOST_LENT_BYTES = 1 << 30

MOST_MAPPED = 64
"""Arenas of others that a process keeps mapped, beside those in use; and their bytes."""

MOST_MAPPED_BYTES = 512 << 20

UNUSED = 60.0
"""Seconds after which a process forgets an arena of another."""

_F_ADD_SEALS = 1033
_F_SEAL_SHRINK = 2


class Lease:
    """The use of some memory by arrays: alive as long as one of them is."""

    def __init__(self, memory: mmap.mmap) -> None:
        # numpy has every array out of this one hold its `base`, a memoryview, and not the arrays between.
        whole: Any = np.frombuffer(memory, np.uint8)
        self._watched = weakref.ref(whole.base)
        self.view = memoryview(whole)

    def end(self) -> None:
        """The caller needs the memory no more."""
        self.view = memoryview(b"")

    @property
    def is_over(self) -> bool:
        """Whether it was ended and no array of it is left."""
        return self._watched() is None


class Arena:
    """Some shared memory. descriptor: to be passed on; size: bytes that are mapped here."""

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("prefork", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.size = 0
        self._lease: Lease | None = None
        self.grow(size)
        # The other side can make it no smaller: to touch what is cut off would be the end of this process.
        fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _F_SEAL_SHRINK)

    def grow(self, size: int) -> None:
        """Have room for at least so many bytes; nothing of it may be in use."""
        size = -(-max(size, SMALLEST) // PAGE) * PAGE
        if size > self.size:
            os.ftruncate(self.descriptor, size)
            self._map(size)

    def follow(self) -> None:
        """Map what the other side has added."""
        size = os.fstat(self.descriptor).st_size
        if size > self.size:
            self._map(size)

    def lend(self) -> Lease:
        """The memory as it is now."""
        self._lease = Lease(self._memory)
        return self._lease

    @property
    def is_free(self) -> bool:
        """Whether nobody in this process uses it."""
        return self._lease is None or self._lease.is_over

    def close(self) -> None:
        """Give it up; its memory goes with the last array of it, here and on the other side."""
        os.close(self.descriptor)
        del self._memory

    def _map(self, size: int) -> None:
        self._memory = mmap.mmap(self.descriptor, size)
        self.size = size


class Arenas:
    """Those of a worker: taken for a request, given back when its answer has been read, used again when that has gone.

    most: arenas, and bytes of them, that are lent at once. expects: whether the last answer was one that needs an arena.
    """

    expects = False

    def __init__(self, most: int = MOST_LENT, most_bytes: int = MOST_LENT_BYTES) -> None:
        self._kept: list[Arena] = []
        self._lock = threading.Lock()
        self._most = most
        self._left = most_bytes
        self._lent: dict[Arena, int] = {}

    def take(self, size: int) -> Arena | None:
        """One that is free, with room for so many bytes; None when as much is lent as may be."""
        with self._lock:
            if len(self._lent) >= self._most or self._left < size:
                return None
            found = self._free(size) or Arena(size)
            found.grow(size)
            self._lent[found] = found.size
            self._left -= found.size
        return found

    def give_back(self, arena: Arena) -> None:
        """It is used again once its arrays have gone; beyond MOST_IDLE it is closed."""
        with self._lock:
            self._return(arena)
            if arena.size + sum(map(_size, self._kept)) <= MOST_IDLE:
                self._kept.append(arena)
                return
        arena.close()

    def drop(self, arena: Arena) -> None:
        """It is not used again: somebody may still write or read there."""
        with self._lock:
            self._return(arena)
        arena.close()

    def close(self) -> None:
        """Close all that were given back."""
        with self._lock:
            for each in self._kept:
                each.close()
            self._kept.clear()

    def _free(self, size: int) -> Arena | None:
        """The smallest that is large enough, else the largest."""
        free = [each for each in self._kept if each.is_free]
        enough = [each for each in free if each.size >= size]
        found = min(enough, key=_size) if enough else max(free, key=_size, default=None)
        if found is not None:
            self._kept.remove(found)
        return found

    def _return(self, arena: Arena) -> None:
        self._left += self._lent.pop(arena, 0)


class Mapping:
    """An arena of another process, mapped here. used: when it was last, in monotonic seconds. is_busy: whether a request has it."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size
        self.used = 0.0
        self.is_busy = False
        self._memory = mmap.mmap(descriptor, size)
        self._lease: Lease | None = None

    def lend(self) -> Lease:
        """The memory as it is now."""
        self._lease = Lease(self._memory)
        return self._lease

    def write(self, frame: Frame, at: int) -> None:
        """Put a frame's buffers there, with more memory for both sides where that is needed."""
        if at + frame.size > self.size:
            self._grow(at + frame.size)
        with memoryview(self._memory) as whole, whole[at : at + frame.size] as place:
            frame.copy_into(place)

    def _grow(self, size: int) -> None:
        size = -(-size // PAGE) * PAGE
        os.ftruncate(self.descriptor, size)
        self._memory = mmap.mmap(self.descriptor, size)
        self.size = size

    def close(self) -> None:
        """Forget it; arrays that are left keep its memory."""
        os.close(self.descriptor)
        del self._memory


class Mappings:
    """The arenas of others that this process has seen, the last MOST_MAPPED of them, for as long as they are used. For any thread.

    What a request has is left alone by all others.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], Mapping] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, descriptor: int) -> Mapping:
        """The mapping of a descriptor that was passed, which belongs to this from now on. Raises OSError and ValueError."""
        about = os.fstat(descriptor)
        key = (about.st_dev, about.st_ino)
        with self._lock:
            found = self._known.pop(key, None)
            if found is not None and not found.is_busy and found.size >= about.st_size:
                os.close(descriptor)
            else:
                if found is not None and not found.is_busy:
                    found.close()
                found = _mapped(descriptor, about.st_size)
            self._known[key] = found
            found.is_busy = True
            self._forget(time.monotonic())
        return found

    def release(self, mapping: Mapping, *, keep: bool) -> None:
        """A request has done with it. keep: whether it will be used again; else its memory is to go with its last array."""
        with self._lock:
            mapping.is_busy = False
            mapping.used = time.monotonic()
            known = next((key for key, each in self._known.items() if each is mapping), None)
            if known is not None and keep:
                return
            if known is not None:
                del self._known[known]
            mapping.close()

    def tidy(self) -> None:
        """Forget those that were not used for UNUSED seconds: their owner may be gone."""
        with self._lock:
            self._forget(time.monotonic())

    def close(self) -> None:
        """Forget all that no request has."""
        with self._lock:
            self._forget(math.inf)

    def __len__(self) -> int:
        return len(self._known)

    def _forget(self, now: float) -> None:
        idle = [(key, each) for key, each in self._known.items() if not each.is_busy]
        size = sum(map(_size, self._known.values()))
        for key, each in idle:
            if len(self._known) <= MOST_MAPPED and size <= MOST_MAPPED_BYTES and now - each.used < UNUSED:
                return
            del self._known[key]
            size -= each.size
            each.close()


def _mapped(descriptor: int, size: int) -> Mapping:
    try:
        return Mapping(descriptor, size)
    except (OSError, ValueError):  # no arena at all
        os.close(descriptor)
        raise


def _size(each: Arena | Mapping) -> int:
    return each.size

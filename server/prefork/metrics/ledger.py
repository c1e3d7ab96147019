"""Where the numbers are: memory that the arbiter maps before it forks, with an account for each of its children.

An account has one writer process at a time. When a worker has gone, however it went, its account is the next worker's,
which adds to what is there: counters never fall, nothing is copied and nothing grows. Any process may read every account.

One account, in words of 8 bytes:

    0      pid of the owner; -1: about to be forked; 0: nobody
    1      words in use, this head included; written last when an entry is added
    2..65  where updates go that there is no room for, so that a writer need not look
    66..   entries, one behind the other

One entry:

    0      width << 32 | length of the key
    1..    key: the JSON list [origin, name, [label, value], ...], zeros up to the next word
    ..     `width` float64

Every number stands on a boundary of 8 bytes, where the platforms that Python runs on neither tear reads nor writes.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
from collections.abc import Iterator

log = logging.getLogger("prefork")

WORDS = 1 << 16
"""Words of an account: 512 KiB of address space, of which only what is in use becomes memory."""

_OWNER, _USED = 0, 1
SINK, _ENTRIES = 2, 66
WIDEST = _ENTRIES - SINK
_LEAST = 64


class Ledger:
    """The accounts: number 0 is the arbiter's, the others are for workers.

    run_dir: the folder where processes that have no account are recorded, the models'; empty where there are none.
    """

    run_dir = ""

    def __init__(self, accounts: int = 8, words: int = WORDS) -> None:
        self._words = words
        size = words * 8
        whole = memoryview(mmap.mmap(-1, (1 + accounts) * size))
        self.accounts = [Account(self, at, whole[at * size : (at + 1) * size]) for at in range(1 + accounts)]
        self.root = self.accounts[0]
        self.root.begin()
        self.root.owner = os.getpid()

    @classmethod
    def of_server(cls, workers: int) -> Ledger:
        """With room for the replacement of each worker, and for workers that are added while the server runs."""
        return cls(max(_LEAST, 2 * workers))

    def take(self) -> Account:
        """The first account that is nobody's, for a worker that is about to be forked.

        When there is none any more, an account that nobody else reads: a server does not end for want of metrics.
        """
        for account in self.accounts:
            if not account.owner:
                account.owner = -1
                return account
        log.warning("the metrics have room for %d workers; those of one more are not seen", len(self.accounts) - 1)
        return Account(self, len(self.accounts), memoryview(mmap.mmap(-1, self._words * 8)))


class Account:
    """One process's numbers.

    cells, words: all of them as float64 and as int64; `cell` says where a series is in it. A series that several threads write is written under
    `lock`.
    """

    def __init__(self, ledger: Ledger, number: int, memory: memoryview) -> None:
        self.ledger = ledger
        self.number = number
        self.lock = threading.Lock()
        self.cells = memory.cast("d")
        self.words = memory.cast("q")
        self._bytes = memory
        self._places: dict[bytes, int] = {}

    @property
    def owner(self) -> int:
        """The pid of the process whose gauges these are; 0 for nobody, -1 for a process that is still to say them."""
        return self.words[_OWNER]

    @owner.setter
    def owner(self, pid: int) -> None:
        self.words[_OWNER] = pid

    def begin(self) -> None:
        """Go on, in this process, with what is there. `owner` is to be set once the gauges are this process's own."""
        self.lock = threading.Lock()
        self.words[_USED] = max(self.words[_USED], _ENTRIES)
        self._places = {key: at for key, at, _ in self.entries()}

    def free(self) -> None:
        """Give it up: its owner has gone."""
        self.owner = 0

    def cell(self, key: bytes, width: int, reserve: int = 0) -> int:
        """Where the numbers of a series are in `cells`, all of them 0 when it is new; SINK when there is no room.

        reserve: words that a new series has to leave for others.
        """
        at = self._places.get(key)
        if at is not None:
            return at
        with self.lock:
            return self._places.get(key) or self._append(key, width, reserve)

    def entries(self) -> Iterator[tuple[bytes, int, int]]:
        """Each series' key, place and width."""
        at, end = _ENTRIES, self.words[_USED]
        while at < end and (head := self.words[at]):
            size, width = head & 0xFFFFFFFF, head >> 32
            start = at + 1 + (size + 7) // 8
            yield bytes(self._bytes[(at + 1) * 8 : (at + 1) * 8 + size]), start, width
            at = start + width

    def _append(self, key: bytes, width: int, reserve: int) -> int:
        at = self.words[_USED]
        start = at + 1 + (len(key) + 7) // 8
        if start + width > len(self.words) - reserve:
            return SINK
        self.words[at] = width << 32 | len(key)
        self._bytes[(at + 1) * 8 : (at + 1) * 8 + len(key)] = key
        self.words[_USED] = start + width
        self._places[key] = start
        return start

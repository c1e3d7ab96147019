"""Which trace a duration was seen in: one request for each bucket of a duration, the newest, with its W3C trace id.

In the ledger they stand beside the histogram, under its own key with the origin `exemplar`. One bucket's, in words of 8
bytes, where a time of 0 is no exemplar and is also what stands there while the rest is written:

    0  time at which it was recorded, float64, seconds since the epoch
    1  the duration, float64, seconds
    2  the trace id's upper half        3  its lower half

Source of the header: https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from prefork.metrics.families import LATENCIES, Family
from prefork.metrics.ledger import SINK, Account, Ledger
from prefork.metrics.series import EXEMPLAR, Key

HEADER = b"traceparent"

_WIDTH = 4
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_prefix = f'["{EXEMPLAR}",'.encode()
_decoder = msgspec.json.Decoder(Key)

Exemplar = tuple[float, float, str]
"""When, how long, and in which trace."""


class Exemplars:
    """A worker's own, of one duration with one label. Written by one thread at a time."""

    def __init__(self, account: Account, family: Family) -> None:
        self._account = account
        self._family = family
        self._places: dict[str, int] = {}

    def note(self, label: str, taken: float, header: bytes) -> None:
        """Keep it, if the header is a traceparent."""
        match = _TRACEPARENT.fullmatch(header)
        trace = int(match[1], 16) if match else 0
        at = self._places.get(label) or self._place(label)
        if not trace or at == SINK:
            return
        at += _WIDTH * bisect_left(LATENCIES, taken)
        cells, words = self._account.cells, self._account.words
        cells[at] = 0.0
        cells[at + 1] = taken
        words[at + 2], words[at + 3] = _signed(trace >> 64), _signed(trace & 0xFFFF_FFFF_FFFF_FFFF)
        cells[at] = time.time()

    def _place(self, label: str) -> int:
        labels = tuple(zip(self._family.labels, (label,), strict=True))
        key = msgspec.json.encode(Key(EXEMPLAR, self._family.name, labels))
        at = self._places[label] = self._account.cell(key, _WIDTH * (len(self._family.buckets) + 1))
        return at


def newest(ledger: Ledger) -> dict[tuple[str, tuple[tuple[str, str], ...]], list[Exemplar | None]]:
    """By the name and the labels of a series, the newest exemplar of each of its buckets."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Exemplar | None]] = {}
    for account in ledger.accounts:
        for raw, at, width in account.entries():
            if raw.startswith(_prefix):
                key = _decoder.decode(raw)
                place = (key.name, key.labels)
                mine = list(_of(account, at, width))
                found[place] = list(map(_newer, found[place], mine)) if place in found else mine
    return found


def _of(account: Account, at: int, width: int) -> Iterator[Exemplar | None]:
    cells, words = account.cells, account.words
    for place in range(at, at + width, _WIDTH):
        when = cells[place]
        one = (when, cells[place + 1], f"{_unsigned(words[place + 2]):016x}{_unsigned(words[place + 3]):016x}")
        yield one if when and when == cells[place] else None


def _newer(one: Exemplar | None, other: Exemplar | None) -> Exemplar | None:
    both: Iterable[Exemplar] = (each for each in (one, other) if each is not None)
    return max(both, default=None)


def _signed(half: int) -> int:
    return half - (1 << 64) if half >> 63 else half


def _unsigned(half: int) -> int:
    return half & 0xFFFF_FFFF_FFFF_FFFF

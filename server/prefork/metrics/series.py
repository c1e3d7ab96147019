"""The key of a series in the ledger, and what a key means.

`origin` is `own` for a metric of the server, whose name says which; else it is Seldon's type of one of the class's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
import numpy as np

from prefork.metrics.families import FAMILIES, Family
from prefork.metrics.ledger import Account

SELDON_BUCKETS = tuple(np.logspace(np.log10(0.001), np.log10(30), 50).tolist())
"""Seldon's bounds of a TIMER, in seconds."""

_KNOWN = 8192

Labels = tuple[tuple[str, str], ...]

EXEMPLAR = "exemplar"
"""The origin of what stands beside a histogram and is no series."""

OWN = b'["own",'
"""How the key of one of the server's own series begins."""


class Key(msgspec.Struct, array_like=True, frozen=True):
    """What stands in the ledger as a series' key."""

    origin: str
    name: str
    labels: Labels = ()


_decoder = msgspec.json.Decoder(Key)


def key(family: Family, *values: str) -> bytes:
    """The key of one of the server's own series, by the values of its labels."""
    return msgspec.json.encode(Key("own", family.name, tuple(zip(family.labels, values, strict=True))))


def own(account: Account, family: Family, *values: str) -> int:
    """The place of one of the server's own series, by the values of its labels."""
    return account.cell(key(family, *values), family.width)


def count(account: Account, family: Family, *values: str) -> None:
    """Add one to one of the server's own counters, which only this thread writes."""
    account.cells[own(account, family, *values)] += 1.0


def custom(account: Account, origin: str, name: str, labels: Mapping[str, str]) -> int:
    """The place of one of the class's series, which leave an eighth of the account to the server's own."""
    key = Key(origin, name, tuple(sorted(labels.items())))
    return account.cell(msgspec.json.encode(key), custom_family(origin, name).width, len(account.cells) // 8)


@lru_cache(_KNOWN)
def meaning(raw: bytes) -> tuple[Key, Family] | None:
    """A key and its family; None for what is no key."""
    try:
        key = _decoder.decode(raw)
    except msgspec.MsgspecError:
        return None
    if key.origin == EXEMPLAR:
        return None
    family = FAMILIES.get(key.name) if key.origin == "own" else custom_family(key.origin, key.name)
    return None if family is None else (key, family)


@lru_cache(_KNOWN)
def custom_family(origin: str, name: str) -> Family:
    """The family of a COUNTER, a GAUGE or a TIMER."""
    if origin == "TIMER":
        return Family(name, "histogram", "", buckets=SELDON_BUCKETS)
    return Family(name, "counter", "") if origin == "COUNTER" else Family(name, "gauge", "", mode="last")

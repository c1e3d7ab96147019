"""Which of a model's versions are served."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from prefork.repository.config import VersionPolicy


def served(policy: VersionPolicy, there: Collection[int]) -> tuple[int, ...]:
    """The versions that the policy takes of those that are there, in order."""
    if policy.specific:
        return tuple(sorted(set(policy.specific) & set(there)))
    ordered = sorted(there)
    return tuple(ordered if policy.all else ordered[-policy.latest :])


def missing(policy: VersionPolicy, there: Collection[int]) -> tuple[int, ...]:
    """The versions that the policy names and that are not there."""
    return tuple(sorted(set(policy.specific) - set(there)))


def number(name: str) -> int | None:
    """The version that a folder's name is: a whole number of at least 1, without leading zeros; else None."""
    return int(name) if name.isascii() and name.isdecimal() and name[0] != "0" and len(name) < 19 else None


def numberlike(names: Iterable[str]) -> Iterator[str]:
    """Those names that look as if a version was meant, and are none: `01`, `0`, `1.5`, `v2`."""
    for name in names:
        plain = name.removeprefix("v").replace(".", "", 2)
        if plain.isdecimal() and number(name) is None:
            yield name

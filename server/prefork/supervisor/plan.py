"""What a load has to do: pure decisions over what is served and what is to be served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from prefork.supervisor.source import Version


class Plan(msgspec.Struct, frozen=True):
    """fresh: to be loaded. kept: unchanged, not touched. gone: served so far, and not to be served any more."""

    fresh: tuple[Version, ...]
    kept: tuple[str, ...]
    gone: tuple[str, ...]


def plan(served: Mapping[str, str | None], wanted: Sequence[Version], *, force: bool = False) -> Plan:
    """served: the fingerprints of the versions that are served, by number; None for one that is not well, which is loaded anew.

    force: load unchanged versions as well.
    """
    kept = tuple(each.number for each in wanted if not force and served.get(each.number, None) == each.fingerprint)
    return Plan(
        fresh=tuple(each for each in wanted if each.number not in kept),
        kept=kept,
        gone=tuple(number for number in served if number not in {each.number for each in wanted}),
    )

"""The one message with which a preload is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prefork.guard.examination import Culprit

_CURE = "Move it to load(), which runs in each worker after the fork; `preload_app: force` forks all the same, at your own risk"


def refusal(found: Sequence[Culprit], lines: Mapping[str, str]) -> str:
    """What does not survive, where it began as far as that is known, and what to do."""
    what = " and ".join(each.what for each in found)
    begun = list(dict.fromkeys(lines[each.who] for each in found if each.who in lines))
    where = f" It began at {'; '.join(begun)}." if begun else ""
    return (
        f"preload_app: what the import or the constructor left does not survive a fork: {what}. Workers would hang or fail at "
        f"their first request.{where} {_CURE}"
    )

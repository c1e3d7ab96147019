"""The answer out of a stream that must have exactly one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from prefork.errors import NotImplementedHere


def only(answers: Iterator[Any]) -> Any:
    """The one answer. Raises NotImplementedHere, with status 500, where there are none or several."""
    first = next(answers, None)
    if first is None:
        raise wrong_count("none")
    if next(answers, None) is not None:
        close = getattr(answers, "close", None)
        if close is not None:
            close()
        raise wrong_count("several")
    return first


async def only_async(answers: AsyncIterator[Any]) -> Any:
    """As `only`."""
    first = await anext(answers, None)
    if first is None:
        raise wrong_count("none")
    if await anext(answers, None) is not None:
        await answers.aclose()  # type: ignore[attr-defined]
        raise wrong_count("several")
    return first


def wrong_count(count: str) -> NotImplementedHere:
    """The error where there are none, or several."""
    return NotImplementedHere(
        f"this endpoint expects the model to produce exactly 1 response, it produced {count}; use generate_stream",
        status=500,
    )

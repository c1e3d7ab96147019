"""The next of an asynchronous iterator's items, looked for without waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """`anext` of an iterator, begun at once. is_there: whether it came without any waiting; then `item` is it, None at the end."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self.item: T | None = None
        self.is_there = False
        self._steps = anext(items).__await__()
        self._future: Any = None
        try:
            self._future = next(self._steps)
        except (StopAsyncIteration, StopIteration) as end:
            self.is_there = True
            self.item = end.value if isinstance(end, StopIteration) else None

    def __await__(self) -> Generator[Any, Any, T | None]:
        """Wait for the item, None at the end."""
        if self.is_there:
            return self.item
        self.is_there = True
        try:
            try:
                yield self._future
            except BaseException as error:  # noqa: BLE001 - it is for whom is waited
                yield self._steps.throw(error)
            return (yield from self._steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except StopAsyncIteration:
            return None

    def cancel(self) -> None:
        """Have it awaited no more: the iterator can be closed then."""
        if not self.is_there:
            self.is_there = True
            with suppress(BaseException):  # to close the steps would leave the iterator as one that runs
                self._steps.throw(asyncio.CancelledError())

"""Stamps of many names: those that hang hold up no other."""

from __future__ import annotations

import asyncio
import threading

from prefork.supervisor import reading
from prefork.supervisor.stamps import Stamps


def test_a_name_that_hangs_is_left_out_until_it_can_be_told_again():
    """Wherever it stands among the others; it is not asked again meanwhile, and the others are each time."""
    gate = threading.Event()
    asked = []

    def stamp(name: str) -> str:
        asked.append(name)
        if name in "bd":
            assert gate.wait(60)
        return f"stamp of {name}"

    async def look() -> None:
        stamps = Stamps(stamp, patience=0.05)
        assert await stamps.look("abcde") == {name: f"stamp of {name}" for name in "ace"}
        assert await stamps.look("abcde") == {name: f"stamp of {name}" for name in "ace"}
        assert (asked.count("b"), asked.count("d"), asked.count("e")) == (1, 1, 2)
        gate.set()
        found = {}
        for _ in range(1000):
            found = await stamps.look("abcde")
            if len(found) == 5:
                break
            await asyncio.sleep(0.01)
        assert found == {name: f"stamp of {name}" for name in "abcde"}

    asyncio.run(look())


def test_names_are_those_of_before_while_the_source_does_not_answer():
    """It is asked once and not again, and its answer counts when it comes."""
    gate = threading.Event()
    answers = [("a",), ("a", "b"), ("c",)]
    calls = []

    def call() -> tuple[str, ...]:
        calls.append(1)
        if len(calls) == 2:
            assert gate.wait(60)
        return answers[len(calls) - 1]

    async def ask() -> None:
        names = reading.Names(call)
        assert await names.get(60) == ("a",)
        assert [await names.get(0.01) for _ in range(3)] == [("a",)] * 3
        assert len(calls) == 2
        gate.set()
        assert await names.get(60) == ("a", "b")
        assert await names.get(60) == ("c",)

    asyncio.run(ask())

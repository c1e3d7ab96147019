"""What a process has mapped: the lines of /proc/PID/maps that tell which library an address belongs to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Mapping(msgspec.Struct, frozen=True):
    """Addresses from `start` up to `end`; path: the file behind them, or a name like `[stack]`, or nothing."""

    start: int
    end: int
    executable: bool
    path: str


def mappings(pid: int | str = "self") -> list[Mapping]:
    """All of them, by address. Raises OSError for a process that is gone or somebody else's."""
    return list(_read(Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape")))


def libraries() -> set[str]:
    """The paths of the files that this process has code from."""
    return {each.path for each in mappings() if each.executable and each.path.startswith("/")}


class Code:
    """Whose code an address is."""

    def __init__(self, every: list[Mapping]) -> None:
        self._code = [each for each in every if each.executable and each.path.startswith("/")]
        self._starts = [each.start for each in self._code]

    def file(self, address: int) -> str:
        """The path of the file that the code at an address comes from; nothing where it is no code of a file."""
        at = bisect_right(self._starts, address) - 1
        return self._code[at].path if at >= 0 and address < self._code[at].end else ""


def _read(text: str) -> Iterator[Mapping]:
    for line in text.splitlines():
        addresses, access, _, _, _, *path = line.split(None, 5)
        start, _, end = addresses.partition("-")
        yield Mapping(int(start, 16), int(end, 16), "x" in access, path[0] if path else "")

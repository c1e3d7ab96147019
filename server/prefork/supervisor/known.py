"""The file `known` of a model's folder in the run directory: the versions that are known and not ready, one a line, each with why after a space."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILE = "known"
_LONGEST = 2000
"""Characters of a reason: workers read it for every request that they refuse."""


def encode(known: Mapping[str, str]) -> bytes:
    """The file's content. known: why each version is not ready, in their order; empty where nothing is wrong with it."""
    lines = [f"{version} {_one_line(why)}".rstrip() for version, why in known.items()]
    return "".join(f"{each}\n" for each in lines).encode(errors="backslashreplace")


def read(folder: Path) -> dict[str, str]:
    """What a model's folder has. Raises OSError."""
    lines = (folder / FILE).read_text("utf-8").split("\n")
    return {version: why for version, _, why in (each.partition(" ") for each in lines if each)}


def _one_line(reason: str) -> str:
    return " ".join(reason.split())[:_LONGEST]

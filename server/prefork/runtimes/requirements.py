"""What a saved model was made with, beside what is installed here."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

_SHOWN = 6


def mismatches(file: Path) -> str:
    """One line: each requirement of a requirements.txt that is not met, and what is here; empty where all are. Needs `packaging`."""
    if not file.is_file():
        return ""
    found = [said for line in file.read_text(errors="replace").splitlines() if (said := _mismatch(line.strip()))]
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return ", ".join([*found[:_SHOWN], *more])


def _mismatch(line: str) -> str:
    """What is wrong with one requirement; empty for one that is met, and for lines that name none (options, comments, addresses)."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        wanted = Requirement(line.partition(" #")[0])
    except InvalidRequirement:
        return ""
    if wanted.marker is not None and not wanted.marker.evaluate():
        return ""
    try:
        here = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        return "" if _is_here(wanted.name) else f"{line} (not installed)"
    return "" if wanted.specifier.contains(here, prereleases=True) else f"{line} (here {here})"


def _is_here(name: str) -> bool:
    """Whether a smaller distribution of the same package is: mlflow-skinny for mlflow, xgboost-cpu for xgboost."""
    names = (f"{name}-skinny", f"{name}-cpu")
    return any(each.name.lower() in names for each in importlib.metadata.distributions() if each.name)

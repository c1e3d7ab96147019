"""How large a saved model is on disk."""

from __future__ import annotations

from pathlib import Path

_STEP = 1024


def bytes_of(path: Path) -> int:
    """Of a file, or of all files of a folder."""
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size


def size_of(path: Path) -> str:
    """For people: `12.3 MiB`."""
    size = float(bytes_of(path))
    for unit in ("B", "KiB", "MiB"):
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} GiB"

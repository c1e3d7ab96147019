"""Folders that say themselves what they hold, in files of other servers and tools."""

from __future__ import annotations

from prefork.runtimes import mlserver, s2i
from prefork.runtimes.recognition import Layout

LAYOUTS: tuple[Layout, ...] = (mlserver.described, s2i.described)
"""Asked in turn, before a folder's other files are looked at."""

"""Everything that the server was told: one frozen struct, and the sources that it is read from."""

from __future__ import annotations

from prefork.settings.settings import Settings, abouts, apply_thread_budget, load, table

__all__ = ["Settings", "abouts", "apply_thread_budget", "load", "table"]

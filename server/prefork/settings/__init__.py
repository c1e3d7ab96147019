"""Everything that the server was told: one frozen struct, and the sources that it is read from."""

from __future__ import annotations

from prefork.settings.loading import (
    abouts,
    apply_thread_budget,
    load,
    set_variable,
    table,
    thread_share,
    threads_here,
    variables,
)
from prefork.settings.settings import Settings

__all__ = [
    "Settings",
    "abouts",
    "apply_thread_budget",
    "load",
    "set_variable",
    "table",
    "thread_share",
    "threads_here",
    "variables",
]

"""The user's class: found, built, and called by its own rules. The only importer of user code, with `compat`."""

from __future__ import annotations

from prefork.model.model import Model

__all__ = ["Model"]

"""`seldon_core.seldon_client`: importable, so that a module which mentions the client loads; the client is not here."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "SeldonClient":
        raise ImportError(
            "seldon_core.seldon_client.SeldonClient is not part of Prefork: install seldon-core, or send plain HTTP "
            "requests (prefork.testing.Client in tests)"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Prefork: a preforking HTTP inference server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefork.errors import PreforkError, Unavailable

if TYPE_CHECKING:
    from prefork.payload import TensorSpec

__version__ = "0.1.0"

__all__ = ["PreforkError", "TensorSpec", "Unavailable", "__version__"]


def __getattr__(name: str) -> Any:
    # `prefork serve` sets the thread-count variables before numpy is imported, which reads them once.
    if name == "TensorSpec":
        from prefork.payload import TensorSpec

        return TensorSpec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Prefork: a preforking HTTP inference server."""

from __future__ import annotations

from prefork.errors import PreforkError, Unavailable
from prefork.payload import TensorSpec

__version__ = "0.1.0"

__all__ = ["PreforkError", "TensorSpec", "Unavailable", "__version__"]

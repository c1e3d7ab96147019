"""Stands in for the `seldon_core` package where that is not installed: the names that model classes import.

`finder.install()` makes `import seldon_core.NAME` give the module `prefork.compat.NAME`, the same object under both
names. What needs protobuf or gRPC has a light equivalent made of plain attributes, or says what to install.
"""

from __future__ import annotations

from prefork.compat.storage import Storage

__version__ = "1.17.1"
"""The release of seldon-core whose names these are."""

__all__ = ["Storage", "__version__"]

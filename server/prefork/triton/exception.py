"""`TritonModelException`."""

from __future__ import annotations


class TritonModelException(Exception):
    """What the functions of `triton_python_backend_utils` raise in a model."""

"""Models written for Triton's Python backend: `class TritonPythonModel` with `execute`, as they stand in its repositories.

`backend_utils` is what they import as `triton_python_backend_utils`; the Adapter makes such a model one of ours.
"""

from __future__ import annotations

from prefork.triton.adapter import Adapter, Place, stand_in

__all__ = ["Adapter", "Place", "stand_in"]

"""The fork guard: under `preload_app` it finds out, before any worker is forked, whether the model survives that.

Three layers. Before the class is built every OpenMP runtime and torch is held to one thread. Then the process is looked
at for what cannot survive. Last, a trial child loads and predicts once. Whatever is found is one message, PreloadRefused.
"""

from __future__ import annotations

from prefork.guard.guard import Guard
from prefork.guard.preload import Preload

__all__ = ["Guard", "Preload"]

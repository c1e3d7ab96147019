"""What one saved model is tested with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Tensors = Mapping[str, Array]


class Case(NamedTuple):
    """A model, and what it is asked.

    runtime: who serves it. name: the case's, unique. make: saves the model in a folder and gives its path, and what the library
    itself predicts for `given`, by the names of outputs that the server gives. given: V2's inputs by name. framework: the
    distribution whose version the matrix in docs/runtimes.md shows. is_exact: bit for bit equal; else to the precision of FP32.
    parameters: for the runtime, as `--parameters` takes them. is_frame: the inputs are the columns of one table.
    """

    runtime: str
    name: str
    make: Callable[[Path], tuple[Path, Tensors]]
    given: Tensors
    framework: str
    is_exact: bool = True
    parameters: Mapping[str, Any] = {}
    is_frame: bool = False

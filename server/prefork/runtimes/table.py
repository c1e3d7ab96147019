"""All runtimes: ours, and those that other packages add."""

from __future__ import annotations

import importlib.metadata
from functools import lru_cache

from prefork.errors import ModelLoadError
from prefork.runtimes import catboost, lightgbm, mlflow, onnx, sklearn, tensorflow, torch, xgboost
from prefork.runtimes.runtime import Runtime

GROUP = "prefork.runtimes"
"""The group of entry points by which a package adds its own."""

_OWN = (
    mlflow.RUNTIME,
    onnx.RUNTIME,
    sklearn.RUNTIME,
    tensorflow.RUNTIME,
    xgboost.RUNTIME,
    lightgbm.RUNTIME,
    catboost.RUNTIME,
    torch.RUNTIME,
)
"""In the order in which they are asked whether a file is theirs."""


@lru_cache(1)
def runtimes() -> dict[str, Runtime]:
    """By name; another package's come after ours, and cannot take their names. Raises ModelLoadError for an entry point that fails."""
    found = {runtime.name: runtime for runtime in _OWN}
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            runtime = point.load()
        except Exception as error:
            raise ModelLoadError(f"the runtime {point.name} ({point.value}) cannot be imported: {error}") from error
        if not isinstance(runtime, Runtime):
            raise ModelLoadError(
                f"the runtime {point.name} ({point.value}) is a {type(runtime).__name__}, not a Runtime"
            )
        found.setdefault(runtime.name, runtime)
    return found


def find(name: str) -> Runtime:
    """The runtime of that name. Raises ModelLoadError with those there are."""
    known = runtimes()
    if name not in known:
        raise ModelLoadError(f"there is no runtime {name!r}; there are {', '.join(sorted(known))}")
    return known[name]

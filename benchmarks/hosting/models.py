"""The models that are measured, as folders of a repository."""

from __future__ import annotations

import json
from pathlib import Path

TRIVIAL = """
class Model:
    def predict(self, X, names):
        return X
"""

BIG = """
import numpy as np

class Model:
    def load(self):
        self.weights = np.full({megabytes} << 17, 1.0)

    def predict(self, X, names):
        return X + self.weights[0]
"""

SPINNING = """
import time

class Model:
    def predict(self, X, names):
        end = time.perf_counter() + {seconds}
        while time.perf_counter() < end:
            pass
        return X
"""

BATCHED = """
import time

class Model:
    def predict(self, X, names):
        time.sleep(0.01 * (1 + (len(X) - 1) / 15))  # 16 rows take twice as long as one
        return X
"""

MORTAL = """
import ctypes, os, signal

class Model:
    def predict(self, X, names):
        how = int(X[0][0])
        if how == 1:
            os._exit(7)
        if how == 11:
            ctypes.string_at(0)
        if how == 9:
            os.kill(os.getpid(), 9)
        return X
"""

VERSIONED = """
class Model:
    def predict(self, X, names):
        return [[{number}]]
"""


def write(repository: Path, name: str, source: str, version: int = 1, **config: object) -> None:
    """A version of a model. The folder appears whole, as a careful deployment has it. config: for model.yaml."""
    folder = repository / name
    folder.mkdir(parents=True, exist_ok=True)
    if config:
        (folder / "model.yaml").write_text(json.dumps(config))  # JSON is YAML
    new = folder / f".{version}"
    new.mkdir()
    (new / "model.py").write_text(source)
    new.rename(folder / str(version))

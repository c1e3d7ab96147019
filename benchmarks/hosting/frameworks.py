"""What an unload of a 500 MB model of a framework gives back. It needs tensorflow-cpu and torch beside Prefork."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.hosting import models
from benchmarks.hosting.memory import loaded, unloaded
from benchmarks.hosting.served import holdings, serving
from benchmarks.report import table

WIDTH = 11_200
"""Its square is 500 MB of FP32."""

MAKE = {
    "tensorflow": """
import sys, tensorflow as tf
class Dense(tf.Module):
    def __init__(self, width):
        self.weights = tf.Variable(tf.random.uniform((width, width)))
    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.float32, "x")])
    def __call__(self, x):
        return {"y": x @ self.weights}
model = Dense(int(sys.argv[2]))
tf.saved_model.save(model, sys.argv[1] + "/model")
""",
    "torch": """
import sys, torch
width = int(sys.argv[2])
torch.jit.script(torch.nn.Linear(width, width, bias=False)).save(sys.argv[1] + "/model.pt")
""",
}


def measure() -> str:
    """Of each framework, one load and unload, after one of a small model."""
    rows = [[name, *_measured(name)] for name in MAKE]
    return table(["500 MB of", "before", "loaded", "when unload has answered", "difference (goal: under 5 MB)"], rows)


def _measured(name: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        repository, run_dir = Path(folder) / "models", Path(folder) / "run"
        models.write(repository, "small", models.BIG.format(megabytes=20))
        place = repository / "big" / "1"
        place.mkdir(parents=True)
        subprocess.run([sys.executable, "-c", MAKE[name], str(place), str(WIDTH)], check=True, capture_output=True)
        with serving(repository, run_dir, "--control", "explicit") as up:
            loaded(up, "small")  # what the first load costs the server itself is not the model's
            unloaded(up, "small")
            before = holdings(up, run_dir).memory
            loaded(up, "big")
            held = holdings(up, run_dir).memory
            unloaded(up, "big")
            after = holdings(up, run_dir).memory
    return [*(f"{size / 1e6:,.1f} MB" for size in (before, held, after)), f"{(after - before) / 1e6:+,.1f} MB"]

"""What TensorFlow gives back when a model is unloaded, and what it costs in speed to have it give back more.

Run as `python -m benchmarks.tensorflow_memory`, with TensorFlow installed; writes docs/runtimes.md's tables. Each row is a fresh process. In a worker: the model is
loaded, asked and closed as a worker does it, and what counts is the resident memory. In a process: a server loads and unloads
it, and what counts is the memory of all its processes.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hosting.served import control, holdings, serving
from benchmarks.report import table, write
from benchmarks.servers import Running
from prefork.errors import ModelLoadError
from prefork.payload import Kind, Payload
from prefork.runtimes.runtime import Options
from prefork.runtimes.saved import Saved
from prefork.supervisor.environment import library

WIDTH = 1024
LAYER = WIDTH * WIDTH * 4 / 1e6
SIZES = (400, 200, 300, 400)
"""Megabytes of the models that are loaded one after the other, each of layers of 4 MB, which is the hard case for an allocator."""
SETTLE = 3.0
"""Seconds after which an allocator that gives memory back by and by has done so."""
ROUNDS = 3
OFF = {"onednn": False}
PAGE = Path(__file__).parents[1] / "docs" / "runtimes.md"


def make(folder: Path, _parameters: dict[str, Any]) -> None:
    """The models, as SavedModels: dense ones by their megabytes, and a convolution."""
    import tensorflow as tf

    for size in (0, *SIZES):
        layers = [
            tf.Variable(tf.random.stateless_normal((WIDTH, WIDTH), (1, 2)) / 32) for _ in range(round(size / LAYER) + 1)
        ]
        _save(folder / f"dense{size}", layers, lambda x, w: tf.nn.relu(x @ w), [None, WIDTH])
    kernels = [tf.Variable(tf.random.stateless_normal((3, 3, 64, 64), (1, 2)) / 24) for _ in range(4)]
    _save(folder / "conv", kernels, lambda x, w: tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME")), [None, 56, 56, 64])


def _save(path: Path, weights: list[Any], layer: Callable[[Any, Any], Any], shape: list[int | None]) -> None:
    import tensorflow as tf

    module = tf.Module()
    module.weights = weights

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32, name="x")])
    def call(x):
        for each in weights:
            x = layer(x, each)
        return {"y": x}

    module.call = call
    tf.saved_model.save(module, str(path), signatures=call)


def opened(path: Path, parameters: dict[str, Any]) -> Saved:
    saved = Saved("tensorflow", path, Options(parameters=parameters))
    saved.load()
    return saved


def ask(saved: Saved, x: np.ndarray) -> None:
    saved.predict(Payload(Kind.TENSORS, {"x": x}))


def resident() -> float:
    """Megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory(folder: Path, parameters: dict[str, Any]) -> list[float]:
    """Of this process: before the models, the most with one, and after all of them were unloaded."""
    seen = [[_cycle(folder / f"dense{size}", parameters), resident()] for size in (0, *SIZES)]
    time.sleep(SETTLE)
    return [seen[0][1], max(loaded for loaded, _ in seen), resident()]


def _cycle(path: Path, parameters: dict[str, Any]) -> float:
    saved = opened(path, parameters)
    for _ in range(5):
        ask(saved, np.ones((8, WIDTH), np.float32))
    loaded = resident()
    saved.close()
    return loaded


def speed(folder: Path, parameters: dict[str, Any]) -> list[float]:
    """CPU milliseconds of one answer: dense layers for one row and for 64, convolutions for one image and for eight."""
    rows = np.ones((64, WIDTH), np.float32)
    images = np.ones((8, 56, 56, 64), np.float32)
    dense, conv = opened(folder / f"dense{SIZES[1]}", parameters), opened(folder / "conv", parameters)
    return [_cost(dense, rows[:1]), _cost(dense, rows), _cost(conv, images[:1]), _cost(conv, images)]


def _cost(saved: Saved, x: np.ndarray) -> float:
    for _ in range(3):
        ask(saved, x)
    return 1000 * statistics.median(_spent(saved, x) for _ in range(30))


def _spent(saved: Saved, x: np.ndarray) -> float:
    begun = time.process_time()
    ask(saved, x)
    return time.process_time() - begun


def in_child(what: str, folder: Path, parameters: dict[str, Any], environment: dict[str, str]) -> list[float]:
    """What `memory`, `speed` or `make` gives in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.tensorflow_memory", "--in", str(folder), what, json.dumps(parameters)]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    said = subprocess.run(command, env=os.environ | quiet | environment, stdout=subprocess.PIPE, check=True)
    return json.loads(said.stdout.splitlines()[-1])


def in_process(folder: Path) -> list[float]:
    """As `memory`, of all processes of a server that holds each model in a process of its own."""
    repository, run_dir = folder / "models", folder / "run"
    for size in (0, *SIZES):
        version = repository / f"dense{size}" / "1"
        version.mkdir(parents=True, exist_ok=True)
        if not (version / "model.savedmodel").exists():
            (version / "model.savedmodel").symlink_to(folder / f"dense{size}")
    with serving(repository, run_dir, "--control", "explicit") as up:
        seen = [(_swap(up, run_dir, f"dense{size}"), holdings(up, run_dir).memory) for size in (0, *SIZES)]
        time.sleep(SETTLE)
        return [seen[0][1] / 1e6, max(loaded for loaded, _ in seen) / 1e6, holdings(up, run_dir).memory / 1e6]


def _swap(up: Running, run_dir: Path, name: str) -> int:
    _done(*control(up, "load", name))
    tensor = {"name": "x", "shape": [8, WIDTH], "datatype": "FP32", "data": [1.0] * (8 * WIDTH)}
    status, _, answer = up.post(f"/v2/models/{name}/infer", {}, json.dumps({"inputs": [tensor]}).encode())
    _done(status, answer)
    loaded = holdings(up, run_dir).memory
    _done(*control(up, "unload", name))
    return loaded


def _done(status: int, body: bytes) -> None:
    if status != 200:
        raise RuntimeError(f"{status}: {body.decode()}")


def memory_rows(folder: Path) -> Iterator[tuple[str, list[float]]]:
    yield "in a worker", in_child("memory", folder, {}, {})
    yield "in a worker, `onednn: false`", in_child("memory", folder, OFF, {})
    try:
        jemalloc = {"LD_PRELOAD": library("jemalloc")}
    except ModelLoadError as error:
        print(error, file=sys.stderr)
    else:
        yield "in a worker, jemalloc", in_child("memory", folder, {}, jemalloc)
        yield "in a worker, jemalloc, `onednn: false`", in_child("memory", folder, OFF, jemalloc)
    yield "in a process of its own", in_process(folder)


def speed_rows(folder: Path) -> Iterator[list[str]]:
    """Medians over the rounds, and the ratio with its range; with and without take turns."""
    rounds = [[in_child("speed", folder, {"onednn": said}, {}) for said in (True, False)] for _ in range(ROUNDS)]
    names = ("dense, 1 row", "dense, 64 rows", "convolution, 1 image", "convolution, 8 images")
    for name, seen in zip(names, np.array(rounds).transpose(2, 0, 1), strict=True):
        with_, without = np.median(seen, axis=0)
        ratios = seen[:, 1] / seen[:, 0]
        said = f"{np.median(ratios):.2f} ({ratios.min():.2f}-{ratios.max():.2f})"
        yield [name, f"{with_:.2f} ms", f"{without:.2f} ms", said]


def report(folder: Path) -> str:
    """Both tables."""
    kept = [
        [name, *(f"{each:,.0f}" for each in (before, most, after)), f"{after - before:+,.0f}"]
        for name, (before, most, after) in memory_rows(folder)
    ]
    cost = list(speed_rows(folder))
    head = ["MB", "before", "most", "after the unloads", "kept"]
    return f"{table(head, kept)}\n{table(['CPU of one answer', 'oneDNN', '`onednn: false`', 'ratio (range)'], cost)}"


def _how() -> str:
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("tensorflow-cpu", "numpy"))
    sizes = ", ".join(map(str, SIZES))
    return (
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d}; {packages}; models of {sizes} MB, loaded, asked and unloaded one after the other; "
        f"one thread. CPU time is the median of 30 answers and {ROUNDS} processes, on a machine that had other work to do.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tensorflow_memory", description=__doc__)
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("what", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("parameters", nargs="?", type=json.loads, default={}, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder is not None:
        print(json.dumps({"memory": memory, "speed": speed, "make": make}[given.what](given.folder, given.parameters)))
        return
    with tempfile.TemporaryDirectory() as name:
        in_child("make", Path(name), {}, {})
        text = f"{_how()}\n{report(Path(name))}"
    print(text)
    write("tensorflow memory", text, PAGE)


if __name__ == "__main__":
    main()

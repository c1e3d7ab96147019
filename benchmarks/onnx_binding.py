"""What ONNX Runtime's IO binding costs on the CPU beside its plain `run`; run as `python -m benchmarks.onnx_binding`.

Needs onnx and onnxruntime; writes docs/runtimes.md's table. CPU microseconds a call, the ways in turn, medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from benchmarks.report import table, write

PAGE = Path(__file__).parents[1] / "docs" / "runtimes.md"
ROUNDS = 9
SHAPES = {(1, 4): 5000, (64, 128): 3000, (1, 3, 224, 224): 600, (8, 3, 512, 512): 30}
"""Shapes of the input, and how often each is asked in a round."""

Way = Callable[[Any, np.ndarray[Any, Any]], Any]


def plain(session: Any, x: np.ndarray[Any, Any]) -> Any:
    """As the runtime does it."""
    return session.run(["y"], {"x": x})[0]


def bound(session: Any, x: np.ndarray[Any, Any]) -> Any:
    """Bound, and the outputs copied."""
    return _bound(session, x).copy_outputs_to_cpu()[0]


def viewed(session: Any, x: np.ndarray[Any, Any]) -> Any:
    """Bound, and the outputs as views of ORT's own memory."""
    return _bound(session, x).get_outputs()[0].numpy()


WAYS: dict[str, Way] = {"`run`": plain, "bound, copied": bound, "bound, viewed": viewed}


def _bound(session: Any, x: np.ndarray[Any, Any]) -> Any:
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return binding


def _session(shape: tuple[int, ...]) -> Any:
    """A graph of one cheap node, so that what is measured is the way in and out."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def _cost(way: Way, session: Any, x: np.ndarray[Any, Any], times: int) -> float:
    begun = time.process_time()
    for _ in range(times):
        way(session, x)
    return (time.process_time() - begun) / times * 1e6


def measure() -> str:
    """The table."""
    rows = []
    for shape, times in SHAPES.items():
        session, x = _session(shape), np.ones(shape, np.float32)
        costs: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(ROUNDS):
            for name, way in WAYS.items():
                costs[name].append(_cost(way, session, x, times))
        rows.append(["x".join(map(str, shape)), *(f"{statistics.median(each):,.1f}" for each in costs.values())])
    return table([f"CPU us a call, onnxruntime {ort.__version__}", *WAYS], rows)


if __name__ == "__main__":
    text = measure()
    print(text)
    write("binding", text, PAGE)

"""ONNX graphs, made with the onnx package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from frameworks.cases.case import Case, Tensors

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.0, 3.0, 5.0, 2.0]], np.float32)
TEXTS = np.array([b"one", b"two"], object)


def _predicted(path: Path, given: Tensors) -> dict[str, Any]:
    session = ort.InferenceSession(path)
    names = [each.name for each in session.get_outputs()]
    feed = {name: array.astype(str).astype(object) if array.dtype == object else array for name, array in given.items()}
    return dict(zip(names, session.run(names, feed), strict=True))


def _saved(graph: onnx.GraphProto, path: Path) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def dense(folder: Path) -> tuple[Path, Tensors]:
    """One matrix multiplication: one input, one output."""
    weights = numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])],
        [weights],
    )
    path = _saved(graph, folder / "dense.onnx")
    return path, _predicted(path, {"x": ROWS})


def several(folder: Path) -> tuple[Path, Tensors]:
    """Two inputs of two datatypes, two outputs, one of them text."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "a"], ["double"]), helper.make_node("Identity", ["t"], ["same"])],
        "several",
        [
            helper.make_tensor_value_info("a", TensorProto.INT64, ["rows"]),
            helper.make_tensor_value_info("t", TensorProto.STRING, ["rows"]),
        ],
        [
            helper.make_tensor_value_info("double", TensorProto.INT64, ["rows"]),
            helper.make_tensor_value_info("same", TensorProto.STRING, ["rows"]),
        ],
    )
    path = _saved(graph, folder / "several.onnx")
    return path, _predicted(path, {"a": np.array([1, 2**60]), "t": TEXTS})


CASES = [
    Case("onnx", "onnx-dense", dense, {"x": ROWS}, "onnxruntime"),
    Case("onnx", "onnx-several", several, {"a": np.array([1, 2**60]), "t": TEXTS}, "onnxruntime", is_frame=True),
]

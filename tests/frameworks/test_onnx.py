"""The ONNX runtime beyond its cases: classifiers as converters write them, threads, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from frameworks.cases.onnx import ROWS, dense, several
from prefork.errors import BadRequest, ModelLoadError
from prefork.payload import Kind, Payload
from prefork.runtimes import onnx as runtime
from prefork.runtimes.recognition import recognise
from prefork.runtimes.runtime import Opened, Options

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]


def opened(path: Path, **parameters: Any) -> Opened:
    return runtime.open_(path, Options(parameters=parameters, threads=2))


def asked(model: Opened, **arrays: Any) -> dict[str, Any]:
    given = {name: np.asarray(array) for name, array in arrays.items()}
    return dict(model.run(model.takes.gather(Payload(Kind.TENSORS, given)), {}))


def saved(graph: onnx.GraphProto, folder: Path, **said: str) -> Path:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    helper.set_model_props(model, said)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def classifier(folder: Path) -> Path:
    """Probabilities in a list of maps, one a row, as converters of scikit-learn's classifiers write them by default."""
    node = helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"])
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    graph = helper.make_graph(
        [node],
        "classifier",
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, ["rows", 2])],
        [helper.make_value_info("maps", kind)],
    )
    return saved(graph, folder, classes="no, yes")


def test_a_classifiers_maps_are_a_matrix(tmp_path: Path):
    """A list of maps from class to probability is answered as a matrix in the classes' order, whose labels the file says."""
    path = classifier(tmp_path)
    assert recognise(path).runtime == "onnx"
    found = opened(path)
    given = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
    np.testing.assert_array_equal(asked(found, p=given)["maps"], given)
    assert found.labels == {"maps": ("no", "yes")}


def test_a_sequence_is_refused_when_it_loads(tmp_path: Path):
    """An input that is no tensor is an error that names it, before anything is served."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [None]))
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["many"], ["count"])],
        "sequence",
        [helper.make_value_info("many", kind)],
        [helper.make_tensor_value_info("count", TensorProto.INT64, [])],
    )
    with pytest.raises(ModelLoadError, match=r"input 'many' is a seq\(tensor\(float\)\): sequences.*are not served"):
        opened(saved(graph, tmp_path))


def test_threads(tmp_path: Path):
    """A request has the threads that the parameter says, else the model's share of the CPUs; the log says how many."""
    path, _ = dense(tmp_path)
    assert opened(path).facts == "CPUExecutionProvider, 2 threads"
    assert opened(path, threads=1, providers="CPUExecutionProvider").facts == "CPUExecutionProvider, 1 threads"
    assert opened(path, threads=1, providers=["CPUExecutionProvider"]).facts == "CPUExecutionProvider, 1 threads"
    with pytest.raises(ModelLoadError, match="threads '4' is no number of threads"):
        opened(path, threads="4")


def test_what_is_no_graph(tmp_path: Path):
    """A file that cannot be loaded is an error that names it and the library's version."""
    path, _ = dense(tmp_path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ModelLoadError, match=rf"dense.onnx cannot be loaded by ONNX Runtime {ort.__version__}: "):
        opened(path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": ROWS[:, :3]}, r"input 'x' has the shape \[2, 3\], which does not fit \[-1, 4\]"),
        ({"x": np.array([["a"] * 4], object)}, "input 'x' has the datatype BYTES and values that do not fit FP32"),
        ({"x": np.array([[2**24 + 1, 0, 0, 0]])}, "input 'x' has the datatype INT64 and values that do not fit FP32"),
        ({"y": ROWS}, r"unexpected input 'y'; the model takes x FP32 \[-1, 4\]"),
        ({}, r"missing input 'x'; the model takes x FP32 \[-1, 4\]"),
    ],
)
def test_inputs_that_do_not_fit(tmp_path: Path, given: dict[str, Any], said: str):
    """What would lose something, or is not there, is a 400 that names the input."""
    path, _ = dense(tmp_path)
    with pytest.raises(BadRequest, match=said):
        asked(opened(path), **given)


def test_what_the_graph_itself_refuses(tmp_path: Path):
    """Inputs that fit one by one and not together are the client's mistake too."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])],
        "sum",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "ab"],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, ["n"])],
    )
    found = opened(saved(graph, tmp_path))
    assert asked(found, a=np.ones(2, np.float32), b=np.ones(2, np.float32))["c"].tolist() == [2, 2]
    with pytest.raises(BadRequest, match="input 'b' has n 3, input 'a' has n 2"):
        asked(found, a=np.ones(2, np.float32), b=np.ones(3, np.float32))


def test_several_outputs(tmp_path: Path):
    """Each output has its name and its datatype; texts are bytes."""
    path, expected = several(tmp_path)
    found = asked(opened(path), a=[1, 2**60], t=np.array([b"one", b"two"], object))
    assert found["double"].tolist() == expected["double"].tolist()
    assert found["same"].tolist() == [b"one", b"two"]

"""ONNX: graphs run by ONNX Runtime, sequentially, with as many threads as the CPU budget gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prefork.errors import BadRequest, ModelLoadError
from prefork.model.casting import carried
from prefork.model.features import text
from prefork.model.tensor_inputs import Tensors
from prefork.payload import TensorSpec
from prefork.runtimes.runtime import Opened, Options, Runtime, needed, threads
from prefork.runtimes.wire import varint

Array = np.ndarray[Any, Any]

_TYPES = {
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(float16)": "FP16",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(bool)": "BOOL",
    "tensor(string)": "BYTES",
}
_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
"""The wire types of ModelProto's fields (onnx.proto3): ir_version, producer, graph, opset imports, ..."""
_HEAD = 4096
_GRAPH = 7


def recognises(path: Path) -> bool:
    """A file that begins as a ModelProto: only its fields, up to the graph."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _is_model(file.read(_HEAD))


def _is_model(data: bytes) -> bool:
    at, seen = 0, set()
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if _FIELDS.get(number) != kind:
            return False
        seen.add(number)
        if number == _GRAPH:
            break
        value, at = varint(data, at)
        at += value if kind == 2 else 0
    return {1, _GRAPH} <= seen or {1, 8} <= seen


def open_(path: Path, options: Options) -> Opened:
    """A session of its own for this process: its threads do not survive a fork. Raises ModelLoadError."""
    with needed("onnx", "onnx"):
        import onnxruntime as ort
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads(options)
    settings.inter_op_num_threads = 1
    settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    settings.log_severity_level = 3
    try:
        session = ort.InferenceSession(path, settings, providers=_providers(ort, options))
    except Exception as error:  # ONNX Runtime's exceptions have no class of their own
        raise ModelLoadError(f"{path} cannot be loaded by ONNX Runtime {ort.__version__}: {error}") from error
    inputs = tuple(_spec(each) for each in session.get_inputs())
    outputs = tuple(_output(each) for each in session.get_outputs())
    return Opened(
        takes=Tensors(inputs),
        outputs=outputs,
        labels=_labels(session, outputs),
        run=_Asked(session),
        facts=f"{', '.join(session.get_providers())}, {settings.intra_op_num_threads} threads",
    )


def _providers(ort: Any, options: Options) -> list[Any]:
    said = options.parameters.get("providers")
    if said:
        return [each.strip() for each in said.split(",")] if isinstance(said, str) else list(said)
    if options.device is None or "CUDAExecutionProvider" not in ort.get_available_providers():
        return ["CPUExecutionProvider"]
    return ["CUDAExecutionProvider", "CPUExecutionProvider"]


def _spec(value: Any) -> TensorSpec:
    datatype = _TYPES.get(value.type)
    if datatype is None:
        raise ModelLoadError(
            f"input {value.name!r} is a {value.type}: sequences, maps and optionals are not served; change the graph's input to a tensor"
        )
    return TensorSpec(datatype, _shape(value), value.name)


def _output(value: Any) -> TensorSpec:
    datatype = _TYPES.get(value.type)
    if datatype is None:  # a ZipMap of a converted classifier: answered as a matrix, see `_plain`
        return TensorSpec("FP32", None, value.name)
    return TensorSpec(datatype, _shape(value), value.name)


def _shape(value: Any) -> tuple[int, ...] | None:
    """Names of free axes, and unknown ones, are -1."""
    shape = value.shape
    return None if shape is None else tuple(size if isinstance(size, int) and size > 0 else -1 for size in shape)


def _labels(session: Any, outputs: tuple[TensorSpec, ...]) -> dict[str, tuple[str, ...]]:
    """What the model's own metadata says under `classes` or `labels`, of its last output."""
    said = session.get_modelmeta().custom_metadata_map
    found = said.get("labels") or said.get("classes")
    return {outputs[-1].name: tuple(each.strip() for each in found.split(","))} if found and outputs else {}


class _Asked:
    """Runs the graph."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._names = [each.name for each in session.get_outputs()]
        self._axes = {each.name: each.shape or () for each in session.get_inputs()}

    def __call__(self, given: dict[str, Array], _parameters: Mapping[str, Any]) -> dict[str, Array]:
        import onnxruntime.capi.onnxruntime_pybind11_state as state

        feed = {name: text(array) if array.dtype == object else array for name, array in given.items()}
        try:
            results = self._session.run(self._names, feed)
        except state.InvalidArgument as error:
            raise BadRequest(f"the model does not take these inputs: {error}") from error
        except (state.Fail, state.RuntimeException):
            self._check_axes(given)
            raise
        return {name: _plain(result) for name, result in zip(self._names, results, strict=True)}

    def _check_axes(self, given: Mapping[str, Array]) -> None:
        """Raise BadRequest for inputs of which two differ in an axis that has one name in both.

        Asked once the graph has failed: a graph whose names promise too much, and which runs all the same, goes on doing so.
        """
        seen: dict[str, tuple[str, int]] = {}
        for name, array in given.items():
            for axis, size in zip(self._axes[name], array.shape, strict=False):
                if not isinstance(axis, str):
                    continue
                other, expected = seen.setdefault(axis, (name, size))
                if expected != size:
                    raise BadRequest(f"input {name!r} has {axis} {size}, input {other!r} has {axis} {expected}")


def _plain(result: Any) -> Array:
    """A tensor; a list of maps from class to probability, which converted classifiers answer, as a matrix in the classes' order."""
    if isinstance(result, list) and result and isinstance(result[0], dict):
        return np.array([list(row.values()) for row in result], np.float32)
    return carried(np.asarray(result))


RUNTIME = Runtime(
    name="onnx",
    platform="onnxruntime_onnx",
    extra="onnx",
    recognises=recognises,
    open=open_,
    parameters={
        "threads": "Threads of one request.",
        "providers": "ONNX Runtime's execution providers, the best first: a list, or with commas.",
    },
)

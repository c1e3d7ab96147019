"""SavedModel folders: which signatures one has, and why it cannot be loaded.

Format: tensorflow/core/protobuf/saved_model.proto and meta_graph.proto.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from prefork.errors import ModelLoadError
from prefork.runtimes import signatures
from prefork.runtimes.runtime import Options
from prefork.runtimes.signatures import Loaded, Signature, Signatures
from prefork.runtimes.wire import varint

_FILE = "saved_model.pb"
_TAG = "serve"
_NOT_DENSE = {"RAGGED_TENSOR_SPEC": "ragged", "SPARSE_TENSOR_SPEC": "sparse"}


def recognises(path: Path) -> bool:
    """A folder whose saved_model.pb begins with a schema version (field 1, a number) and a graph (field 2, a message)."""
    file = path / _FILE
    if not path.is_dir() or not file.is_file():
        return False
    with file.open("rb") as opened:
        head = opened.read(16)
    _, at = varint(head, 1)
    return head[:1] == b"\x08" and head[at : at + 1] == b"\x12"


def load(path: Path, options: Options) -> Loaded:
    """Its signatures. Raises ModelLoadError."""
    import tensorflow as tf

    graph = _graph(path)
    written, here = graph.meta_info_def.tensorflow_version, tf.__version__
    try:
        root = tf.saved_model.load(str(path), tags=list(graph.meta_info_def.tags))
    except Exception as error:  # whatever a kernel, a file system or an object's loader raises
        raise ModelLoadError(
            f"{path} cannot be loaded: {_why(error, here)}; it was written by TensorFlow {written or '?'}, here is {here}"
        ) from error
    try:
        found = _signatures(root, graph, options.parameters.get("signature"))
    except ModelLoadError as error:
        raise ModelLoadError(f"{path}: {error}") from error
    return Loaded(found, f"TensorFlow {here}, {found.facts}")


def _graph(path: Path) -> Any:
    """Its MetaGraphDef for serving. Raises ModelLoadError."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    message = SavedModel()
    try:
        message.ParseFromString((path / _FILE).read_bytes())
    except (OSError, DecodeError) as error:
        raise ModelLoadError(f"{path / _FILE} cannot be read: {error}") from error
    found = [each for each in message.meta_graphs if _TAG in each.meta_info_def.tags] or list(message.meta_graphs)
    if len(found) != 1:
        tags = "; ".join(", ".join(each.meta_info_def.tags) for each in found) or "none"
        raise ModelLoadError(f"{path} has not one graph with the tag {_TAG!r}, but these: {tags}")
    return found[0]


def _why(error: Exception, here: str) -> str:
    text = str(error)
    op = re.search(r"Op type not registered '([^']+)'", text)
    if op is None:
        return f"{type(error).__name__}: {signatures.reason(text)}"
    return (
        f"it needs the op {op[1]}, which TensorFlow {here} does not have. If that is a custom op, the package that brings it (such as "
        "tensorflow_text) has to be imported first: serve a class that imports it and loads the model in load()"
    )


def _signatures(root: Any, graph: Any, said: str | None) -> Signatures:
    default = signatures.choose(tuple(root.signatures), said)
    found, refused = {}, {}
    for name, function in root.signatures.items():
        try:
            found[name] = _signature(name, function, graph)
        except ModelLoadError as error:
            refused[name] = f"the signature {name!r} cannot be served: {error}"
    if default in refused:
        raise ModelLoadError(refused[default])
    return Signatures(found, default, refused, owner=root)


def _signature(name: str, function: Any, graph: Any) -> Signature:
    declared = _declared(graph, name)
    _check_dense(graph, name, declared)
    inputs, outputs = (
        function.structured_input_signature[1],
        function.structured_outputs,
    )  # in any order, as protobuf's maps
    return Signature(
        [signatures.spec("input", each, inputs[each]) for each in _ordered(inputs, declared)],
        [signatures.spec("output", each, outputs[each]) for each in sorted(outputs, key=_natural)],
        function,
    )


def _check_dense(graph: Any, name: str, declared: list[Any]) -> None:
    """Raise ModelLoadError for ragged and sparse inputs, which a loaded signature shows as the dense tensors that they consist of."""
    inputs = graph.signature_def[name].inputs
    for key, tensor in inputs.items():
        if tensor.WhichOneof("encoding") != "name":
            raise signatures.refusal("input", key, "sparse or ragged")
    text = "".join(map(str, declared))
    kind = next((kind for mark, kind in _NOT_DENSE.items() if mark in text), None)
    if kind is not None:
        raise signatures.refusal("input", ", ".join(sorted(inputs)), kind)


def _ordered(inputs: Collection[str], declared: list[Any]) -> list[str]:
    """As the function has its arguments, where that was saved; else by name."""
    said = (list(_names(each)) for each in declared)
    return next((names for names in said if sorted(names) == sorted(inputs)), sorted(inputs, key=_natural))


def _names(value: Any) -> Iterator[str]:
    """Of the tensors in a StructuredValue (struct.proto), in the order of the function's arguments."""
    kind = value.WhichOneof("kind")
    if kind == "tensor_spec_value":
        yield value.tensor_spec_value.name
    elif kind == "tuple_value":
        for each in value.tuple_value.values:
            yield from _names(each)
    elif kind == "dict_value":
        for _, each in sorted(value.dict_value.fields.items()):
            yield from _names(each)


def _natural(name: str) -> list[tuple[int, str]]:
    """So that output_10 comes after output_9."""
    return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", name)]


def _declared(graph: Any, name: str) -> list[Any]:
    """The arguments of the functions that the signature's node calls: first that which was saved, then what was made around it."""
    nodes = {tensor.name.partition(":")[0] for tensor in graph.signature_def[name].outputs.values()}
    outer = {_called(node) for node in graph.graph_def.node if node.name in nodes}
    library = [function for function in graph.graph_def.library.function if function.signature.name in outer]
    inner = {_called(node) for function in library for node in function.node_def} - outer
    known = graph.object_graph_def.concrete_functions
    return [known[each].canonicalized_input_signature for each in (*sorted(inner), *sorted(outer)) if each in known]


def _called(node: Any) -> str:
    return str(node.attr["f"].func.name) if "f" in node.attr else ""

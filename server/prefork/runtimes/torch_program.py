"""Programs of `torch.export` (.pt2): they say the datatypes of their inputs, the shapes, and which axes are free."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefork.errors import ModelLoadError
from prefork.model.tensor_inputs import Tensors
from prefork.payload import TensorSpec
from prefork.runtimes import pickles
from prefork.runtimes.runtime import Opened, Options
from prefork.runtimes.torch_call import Call, datatype_of, last_line, named_outputs, shape_of


def open_program(torch: Any, path: Path, options: Options, device: Any) -> Opened:
    """The program in an archive, on the device. Raises ModelLoadError."""
    if "inputs" in options.parameters:
        raise ModelLoadError("parameters: inputs: an exported program says itself what it takes")
    pickles.check_safe(path, allowed=options.allow_pickle, what="has pickles inside, and torch.export.load")
    program = _read_program(torch, path)
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, device)
    placeholders = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    leaves = [_Leaf(name, placeholders.get(name), torch) for name in program.graph_signature.user_inputs]
    inputs = tuple(leaf.spec() for leaf in leaves if leaf.is_input)
    module = program.module()
    if options.parameters.get("compile"):
        module = torch.compile(module)
    structure = program.call_spec.in_spec

    def call(given: Mapping[str, Any]) -> Any:
        args, kwargs = structure.unflatten([given[leaf.name] if leaf.is_input else leaf.name for leaf in leaves])
        return module(*args, **kwargs)

    dtypes = {leaf.name: leaf.value.dtype for leaf in leaves if leaf.is_input}
    return Opened(
        takes=Tensors(inputs),
        outputs=_declared_outputs(torch, program),
        run=Call(torch, call, dtypes, device),
    )


def _read_program(torch: Any, path: Path) -> Any:
    try:
        if path.suffix == ".pt2":
            return torch.export.load(path)
        with path.open("rb") as file:  # torch complains of other names
            return torch.export.load(file)
    except Exception as error:
        raise ModelLoadError(
            f"{path} cannot be loaded by torch {torch.__version__}: {last_line(error)}{_written(path)}"
        ) from error


def _written(path: Path) -> str:
    """By which torch, as the archive says."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"[^/]+/models/[^/]+\.json", name):
                found = re.search(rb'"torch_version":\s*"([^"<]+)', archive.read(name))
                return f"; this file was written by torch {found[1].decode()}" if found else ""
    return ""


class _Leaf:
    """One of a program's arguments: a tensor, or a value that was fixed when it was exported."""

    def __init__(self, name: Any, value: Any, torch: Any) -> None:
        self.name = name  # of a fixed argument, its value
        self.value = value
        self.is_input = isinstance(value, torch.Tensor)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise ModelLoadError(f"the argument {name!r} is a number that varies; only tensors are served")

    def spec(self) -> TensorSpec:
        """As V2's metadata has it. Raises ModelLoadError for a datatype that V2 has no name for."""
        datatype = datatype_of(self.value.dtype)
        if not datatype:
            raise ModelLoadError(f"input {self.name!r} is of the datatype {self.value.dtype}, which is not served")
        return TensorSpec(datatype, shape_of(self.value), self.name)


def _declared_outputs(torch: Any, program: Any) -> tuple[TensorSpec, ...] | None:
    """From the values that torch.export has traced; None where one of them is no tensor."""
    node = next(node for node in program.graph.nodes if node.op == "output")
    count = len(program.graph_signature.user_outputs)
    values = [getattr(each, "meta", {}).get("val") for each in node.args[0]][
        -count:
    ]  # changed buffers stand before them
    found = dict(named_outputs(program.call_spec.out_spec.unflatten(values)))
    if not all(isinstance(value, torch.Tensor) for value in found.values()):
        return None
    return tuple(TensorSpec(datatype_of(value.dtype), shape_of(value), name) for name, value in found.items())

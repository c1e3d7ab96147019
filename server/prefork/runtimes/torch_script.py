"""TorchScript: it says the names of its inputs; a traced module has kept the shapes and datatypes that it was traced with."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from prefork.errors import ModelLoadError
from prefork.model.tensor_inputs import Tensors
from prefork.payload import DATATYPES, TensorSpec
from prefork.runtimes.runtime import Opened, Options
from prefork.runtimes.torch_call import Call, datatype_of, last_line

Array = np.ndarray[Any, Any]


def open_script(torch: Any, path: Path, options: Options, device: Any) -> Opened:
    """The module in a file, on the device. Raises ModelLoadError."""
    if options.parameters.get("compile"):
        raise ModelLoadError("parameters: compile: TorchScript is compiled already")
    module = _read_script(torch, path, device)
    arguments = _arguments(module)
    said = _said(options.parameters.get("inputs"), tuple(arguments))
    traced = {name: seen for name, seen in _traced(module).items() if name not in said and datatype_of(seen.dtype)}
    inputs = tuple(
        said.get(name) or _spec(name, traced.get(name), optional=optional) for name, optional in arguments.items()
    )
    dtypes = {name: seen.dtype for name, seen in traced.items()}
    dtypes.update({name: getattr(torch, str(DATATYPES[spec.datatype])) for name, spec in said.items()})
    floats = next((each.dtype for each in module.parameters() if each.is_floating_point()), torch.float32)
    return Opened(
        takes=Tensors(inputs),
        run=Call(torch, lambda given: module(**given), dtypes, device, floats),
        example={name: seen.zeros() for name, seen in traced.items()} if len(traced) == len(arguments) else None,
    )


def _read_script(torch: Any, path: Path, device: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # whose file it is, is not asked
        try:
            # Only so does torch tell what a module was traced with; it writes it beside the graph's inputs and does no more.
            return torch.jit.load(path, map_location=device, _restore_shapes=_is_traced(path)).eval()
        except Exception as error:
            raise ModelLoadError(f"{path} cannot be loaded by torch {torch.__version__}: {last_line(error)}") from error


def _is_traced(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/traced_inputs.pkl") for name in archive.namelist())


def _arguments(module: Any) -> dict[str, bool]:
    """The tensors that `forward` takes, and whether each may be left out. Raises ModelLoadError for other kinds of input."""
    found: dict[str, bool] = {}
    for argument in module.forward.schema.arguments[1:]:
        kind = str(argument.type)
        has_default = argument.has_default_value()
        if kind in {"Tensor", "Optional[Tensor]"}:
            found[argument.name] = has_default
        elif not has_default:
            raise ModelLoadError(f"forward takes {argument.name!r}, a {kind}; only tensors are served: wrap the module")
    return found


class _Seen(NamedTuple):
    """What an input was when the module was traced."""

    dtype: Any
    shape: tuple[int, ...]

    def zeros(self) -> Array:
        """An example of one row: which other sizes could change is not known."""
        return np.zeros((1, *self.shape[1:])[: len(self.shape)], DATATYPES[datatype_of(self.dtype)])


def _traced(module: Any) -> dict[str, _Seen]:
    """The inputs that a module was traced with, by name."""
    found = {}
    arguments = module.forward.schema.arguments[1:]
    for argument, value in zip(arguments, list(module.graph.inputs())[1:], strict=True):
        kind = value.type()
        sizes = kind.sizes() if kind.kind() == "TensorType" else None
        if sizes is not None and all(size is not None for size in sizes):
            found[argument.name] = _Seen(kind.dtype(), tuple(sizes))
    return found


def _spec(name: str, seen: _Seen | None, *, optional: bool) -> TensorSpec:
    """Which of the traced sizes are free is not known: only how many axes there are."""
    if seen is None:
        return TensorSpec("", None, name, optional)
    return TensorSpec(datatype_of(seen.dtype), (-1,) * len(seen.shape), name, optional)


def _said(said: Any, arguments: tuple[str, ...]) -> dict[str, TensorSpec]:
    """The parameter `inputs`, a list or its JSON. Raises ModelLoadError."""
    try:
        read = json.loads(said) if isinstance(said, str) else said
        specs = msgspec.convert(read or [], list[_Said])
    except (ValueError, msgspec.ValidationError) as error:
        raise ModelLoadError(f"parameters: inputs: {error}") from error
    for spec in specs:
        if spec.name not in arguments:
            raise ModelLoadError(f"parameters: inputs: {spec.name!r} is none of {', '.join(arguments)}")
        if spec.datatype not in DATATYPES or spec.datatype == "BYTES":
            raise ModelLoadError(f"parameters: inputs: {spec.name!r}: {spec.datatype!r} is no datatype of a tensor")
    return {spec.name: TensorSpec(spec.datatype, spec.shape, spec.name) for spec in specs}


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    """An input as the parameter `inputs` lists it; -1 for a free axis."""

    name: str
    datatype: str
    shape: tuple[int, ...] | None = None

"""The file `MLmodel` of a folder that MLflow has saved: flavours, signature and example, read without MLflow.

Format: https://mlflow.org/docs/latest/ml/model/
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml

from prefork.errors import ModelLoadError
from prefork.payload import TensorSpec, datatype_of

FILE = "MLmodel"
FLAVOUR = "python_function"
WHOLE = "input"
"""What metadata calls the one tensor of a signature that gives it no name."""

_COLUMNS = {
    "boolean": "BOOL",
    "integer": "INT32",
    "long": "INT64",
    "float": "FP32",
    "double": "FP64",
    "string": "BYTES",
    "binary": "BYTES",
    "datetime": "BYTES",
}


class Port(msgspec.Struct, frozen=True):
    """One input or output of a signature: a column, or a tensor.

    kind: MLflow's word for a column's type, or numpy's for a tensor's.
    """

    spec: TensorSpec
    kind: str
    is_tensor: bool


class MLmodel(msgspec.Struct, frozen=True):
    """What the file says. inputs, outputs: empty without a signature. params: names that a request may give."""

    folder: Path
    flavours: Mapping[str, Mapping[str, Any]]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    params: frozenset[str] = frozenset()
    example: Mapping[str, Any] = {}

    @property
    def is_custom(self) -> bool:
        """Whether it is the user's own code that answers, and no flavour's."""
        return self.flavours[FLAVOUR].get("loader_module") == "mlflow.pyfunc.model"


def is_model(folder: Path) -> bool:
    """Whether MLflow has saved a model in this folder."""
    file = folder / FILE
    return file.is_file() and b"flavors:" in file.read_bytes()


def read(folder: Path) -> MLmodel:
    """The file of that folder. Raises ModelLoadError for one without the flavour python_function, or that cannot be understood."""
    file = folder / FILE
    try:
        said = yaml.safe_load(file.read_text())
        flavours = dict(said["flavors"])
        signature = said.get("signature") or {}
        inputs, outputs = (_ports(signature.get(each)) for each in ("inputs", "outputs"))
        params = frozenset(each["name"] for each in _listed(signature.get("params")))
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{file} cannot be understood: {type(error).__name__}: {error}") from error
    if FLAVOUR not in flavours:
        raise ModelLoadError(f"{file}: the flavour {FLAVOUR} is needed; it has {', '.join(flavours) or 'none'}")
    return MLmodel(folder, flavours, inputs, outputs, params, said.get("saved_input_example_info") or {})


def _listed(said: Any) -> Sequence[Any]:
    """The list that the file holds as JSON in a text."""
    return json.loads(said) or [] if isinstance(said, str) else said or []


def _ports(said: Any) -> tuple[Port, ...]:
    return tuple(_tensor(each) if each.get("type") == "tensor" else _column(each) for each in _listed(said))


def _tensor(said: Mapping[str, Any]) -> Port:
    form = said["tensor-spec"]
    kind = form["dtype"]
    datatype = datatype_of(np.zeros(0, "O" if kind == "object" else kind)) or ""
    return Port(TensorSpec(datatype, tuple(form["shape"]), said.get("name") or ""), kind, is_tensor=True)


def _column(said: Mapping[str, Any]) -> Port:
    """A column; of a type that is no value but a list or an object, one without a datatype."""
    kind = said["type"]
    is_optional = not said.get("required", not said.get("optional", False))
    spec = TensorSpec(_COLUMNS.get(kind, ""), (-1,), said.get("name") or "", is_optional)
    return Port(spec, kind, is_tensor=False)


def example(model: MLmodel) -> Any:
    """The saved input example: arrays by name, or one array; None where there is none of such a form."""
    path = model.folder / str(model.example.get("artifact_path", ""))
    if path == model.folder or not path.is_file() or path.suffix != ".json":
        return None
    try:
        said = json.loads(path.read_text())
        said = said["inputs"] if model.example.get("params") and set(said) == {"inputs", "params"} else said
        return _arrays(said, model)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _arrays(said: Any, model: MLmodel) -> Any:
    kind = model.example.get("type")
    datatypes = {port.spec.name: port.spec.datatype for port in model.inputs}
    if kind == "dataframe" and model.example.get("pandas_orient") == "split":
        columns = zip(*said["data"], strict=True)
        named = {str(name): list(each) for name, each in zip(said["columns"], columns, strict=True)}
        if not model.inputs or "" in datatypes:
            return np.array(said["data"])
        return {name: _array(values, datatypes[name]) for name, values in named.items()}
    if kind == "ndarray" and isinstance(said, dict) and set(said) != {"inputs"}:
        return {name: _array(values, datatypes.get(name, "")) for name, values in said.items()}
    if kind == "ndarray":
        found = _array(said["inputs"] if isinstance(said, dict) else said, next(iter(datatypes.values()), ""))
        return {WHOLE: found} if model.inputs else found
    return None


def _array(values: Any, datatype: str) -> Any:
    from prefork.model.casting import cast

    found = np.array(values)
    fitting = cast(found, datatype) if datatype else found
    if fitting is None:
        raise ValueError(datatype)
    return fitting

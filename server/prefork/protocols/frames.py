"""Rows and columns to payloads: V1's `instances` and `inputs`, MLflow's two data frames and CSV.

What a model gets depends on its signature alone. A model without one (`X, names`) gets a matrix with its columns'
names, or named tensors where the client names them; a model with one gets named tensors that fit it.
Every refusal is a BadRequest that names the row, the column or the key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefork.errors import BadRequest
from prefork.payload import Kind, ModelSpec, Payload
from prefork.protocols import values
from prefork.protocols.fitting import convert, fit, only_input

Array = NDArray[Any]


def rows(instances: Any, spec: ModelSpec, field: str = "instances") -> Payload:
    """TF-Serving's row format: a list of values is one array, a list of objects is one array a key, stacked."""
    if not isinstance(instances, list | np.ndarray):
        raise BadRequest(f"'{field}' must be a list, one value or object a row")
    if len(instances) and _is_named(instances[0]):
        return Payload(Kind.TENSORS, fit(_stacked(instances, field), spec))
    return bare(values.to_array(instances, field), spec, field)


def columns(inputs: Any, spec: ModelSpec, field: str = "inputs") -> Payload:
    """TF-Serving's column format: an object is an array a key, anything else is one array."""
    if not _is_named(inputs):
        return bare(values.to_array(inputs, field), spec, field)
    return Payload(Kind.TENSORS, fit({name: values.to_array(value, name) for name, value in inputs.items()}, spec))


def bare(array: Array, spec: ModelSpec, field: str, names: list[Any] | None = None) -> Payload:
    """One array without a name: X, or the one input that a signature has."""
    if spec.inputs is None:
        return Payload(Kind.TENSOR, array, names=names)
    tensor = only_input(spec)
    if tensor is None:
        wanted = ", ".join(tensor.name for tensor in spec.inputs)
        raise BadRequest(f"'{field}' must name the model's inputs: {wanted}")
    return Payload(Kind.TENSORS, {tensor.name: convert(array, tensor)})


def split(names: list[Any] | None, data: Any, spec: ModelSpec, field: str = "dataframe_split") -> Payload:
    """A data frame as its columns' names and its rows."""
    if isinstance(data, np.ndarray) and data.ndim == 2:
        _check_width(data.shape[1], names, f"{field}.data[0]")
        return _table(names, data, spec, field)
    found = data.tolist() if isinstance(data, np.ndarray) else data
    if not isinstance(found, list):
        raise BadRequest(f"'{field}.data' must be a list of rows")
    for at, row in enumerate(found):
        if not isinstance(row, list):
            raise BadRequest(f"'{field}.data[{at}]' must be a list, one value a column")
        _check_width(len(row), found[0] if names is None else names, f"{field}.data[{at}]")
    return _table(names, found, spec, field)


def _check_width(width: int, columns: list[Any] | None, where: str) -> None:
    if columns is not None and width != len(columns):
        raise BadRequest(f"'{where}' has {width} values, there are {len(columns)} columns")


def records(found: Any, spec: ModelSpec, field: str = "dataframe_records") -> Payload:
    """A data frame as one object a row, all of the same keys."""
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        raise BadRequest(f"'{field}' must be a list of objects, one a row")
    names = list(found[0]) if found else []
    _check_keys(found, names, field)
    return _table(names, [[record[name] for name in names] for record in found], spec, field)


def _table(names: list[Any] | None, data: list[Any] | Array, spec: ModelSpec, field: str) -> Payload:
    """Rows of one length as X with its columns' names, or as what the signature asks for."""
    if names is not None and len(set(map(str, names))) < len(names):
        raise BadRequest(f"'{field}' has two columns of one name")
    if spec.inputs is None or not _by_column(names, spec):
        return bare(_matrix(data, len(names or ()), field), spec, field, names)
    found = {str(name): _column(data, at, str(name)) for at, name in enumerate(names or ())}
    return Payload(Kind.TENSORS, fit(found, spec))


def _column(data: list[Any] | Array, at: int, name: str) -> Array:
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data[:, at])
    return values.to_array([row[at] for row in data], name)


def _by_column(names: list[Any] | None, spec: ModelSpec) -> bool:
    """Whether the columns are the model's inputs; the other case is one input that takes the whole matrix."""
    inputs = {tensor.name for tensor in spec.inputs or ()}
    return names is not None and (only_input(spec) is None or not inputs.isdisjoint(map(str, names)))


def _matrix(data: list[Any] | Array, width: int, field: str) -> Array:
    """The rows as one array: numbers (null is NaN), text, or an object array of the values as they are."""
    if isinstance(data, np.ndarray):
        return data
    if not data:
        return np.empty((0, width))
    cells = [cell for row in data for cell in row]
    kinds = set(map(type, cells))
    if kinds.isdisjoint({list, dict}) and (kinds == {str} or str not in kinds) and kinds != {type(None)}:
        return values.to_array(data, field)
    return np.fromiter(cells, dtype=object, count=len(cells)).reshape(len(data), -1)


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not (len(value) == 1 and "b64" in value)


def _stacked(instances: Any, field: str) -> dict[str, Array]:
    for at, row in enumerate(instances):
        if not isinstance(row, dict):
            raise BadRequest(f"'{field}[{at}]' must be an object, as '{field}[0]' is")
    names = list(instances[0])
    _check_keys(instances, names, field)
    return {name: _stack([row[name] for row in instances], name, field) for name in names}


def _check_keys(found: list[dict[str, Any]], names: list[str], field: str) -> None:
    expected = set(names)
    for at, row in enumerate(found):
        if row.keys() != expected:
            odd = min(row.keys() ^ expected)
            fault = "lacks" if odd in expected else "has"
            raise BadRequest(f"'{field}[{at}]' {fault} the key '{odd[:100]}', '{field}[0]' {_other(fault)}")


def _other(fault: str) -> str:
    return "has it" if fault == "lacks" else "does not"


def _stack(cells: list[Any], name: str, field: str) -> Array:
    """One key's values, a row each, as one array. Raises BadRequest naming the first row that differs."""
    try:
        found = values.to_array(cells, name)
    except BadRequest:
        _check_alike(cells, name, field)
        raise
    if found.dtype == object:
        _check_alike(cells, name, field)
    return found


def _check_alike(cells: list[Any], name: str, field: str) -> None:
    """Raises BadRequest naming the first row whose value is of another shape, or no text where the first one is."""
    first = values.to_array(cells[0], name)
    for at, cell in enumerate(cells):
        array = values.to_array(cell, name)
        if array.shape != first.shape or _is_text(array) != _is_text(first):
            raise BadRequest(
                f"'{field}[{at}]': '{name}' is {_described(array)}, in '{field}[0]' it is {_described(first)}"
            )


def _is_text(array: Array) -> bool:
    return array.dtype.kind in "UO"


def _described(array: Array) -> str:
    return f"{'text' if _is_text(array) else 'numbers'} of shape {list(array.shape)}"

"""A model's own example as a sample: JSON values that can be shown, and sent as they are.

Tensors become V2's inputs, in the datatypes and shapes that the model declares; what is no tensor stays Seldon's message. What JSON
cannot say, what does not fit and what is too large to show is no sample.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from prefork.errors import BadRequest
from prefork.model.answers import from_list
from prefork.model.casting import as_bytes, cast, fitted
from prefork.model.hooks import is_default
from prefork.model.signature import takes_nothing
from prefork.payload import Kind, Payload, Sample, TensorSpec, datatype_of

Array = np.ndarray[Any, Any]
Specs = tuple[TensorSpec, ...]

MOST = 4096
"""Elements that a sample has."""
_LONGEST = 1 << 16
"""Bytes that it has in JSON."""
_ANY = TensorSpec()


def given(user_object: object) -> Any:
    """A class's own `example`: an attribute, or what a method without arguments returns. Raises what that raises."""
    said = getattr(user_object, "example", None)
    if not callable(said):
        return said
    return said() if takes_nothing(said) and not is_default(said) else None


def payload(said: Any, *, named: bool) -> Payload:
    """An example as a request. named: whether a dict's values are inputs, not a JSON value."""
    if named and isinstance(said, dict):
        return Payload(Kind.TENSORS, {name: _array(value) for name, value in said.items()})
    if isinstance(said, Payload):
        return said
    for kind, known in ((Kind.TEXT, str), (Kind.BYTES, bytes), (Kind.JSON, dict)):
        if isinstance(said, known):
            return Payload(kind, said)
    columns = getattr(said, "columns", None)
    array = _array(said)
    if array.dtype == object and not isinstance(said, np.ndarray) and columns is None:
        return Payload(Kind.JSON, said)
    return Payload(Kind.TENSOR, array, names=None if columns is None else [str(name) for name in columns])


def sample(request: Payload, inputs: Specs | None) -> Sample | None:
    """The request as JSON values; None where that cannot be. inputs: what the model says that it takes."""
    tensors = _tensors(request, inputs or ())
    if tensors is not None:
        found = _of_tensors(_cut(tensors), inputs or ())
    else:
        found = Sample(message=_message(request)) if inputs is None else None
    return found and _told(found)


def _array(value: Any) -> Array:
    """As numpy sees it; lists of unequal lengths, which it refuses, as objects."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.asarray(value, dtype=object)


def _tensors(request: Payload, specs: Specs) -> dict[str, Array] | None:
    """Arrays by the inputs' names; None for what is no tensor."""
    value = request.value
    if request.kind is Kind.TENSORS:
        return dict(value)
    if request.kind is Kind.TENSOR:
        return _of_matrix(value, request.names or [], [spec.name for spec in specs])
    if specs and request.kind is Kind.JSON and isinstance(value, dict):
        return {name: _array(each) for name, each in value.items()}
    return {specs[0].name: _array([value])} if len(specs) == 1 and request.kind is Kind.TEXT else None


def _of_matrix(matrix: Array, names: list[Any], known: list[str]) -> dict[str, Array] | None:
    """A matrix as one input, or as its columns where these have names of their own or are inputs by their order."""
    if len(known) == 1:
        return {known[0]: matrix}
    width = matrix.shape[1] if matrix.ndim == 2 else 0
    chosen = list(map(str, names)) or known
    if width > 1 and width == len(chosen) == len(set(chosen)) and (not known or set(chosen) <= set(known)):
        return {name: matrix[:, at] for at, name in enumerate(chosen)}
    return None if known else {"X": matrix}


def _cut(tensors: Mapping[str, Array]) -> Mapping[str, Array]:
    """The first row alone, of what is too large and has several."""
    if sum(array.size for array in tensors.values()) <= MOST:
        return tensors
    lengths = {array.shape[:1] for array in tensors.values()}
    return {name: array[:1] for name, array in tensors.items()} if len(lengths) == 1 else tensors


def _of_tensors(tensors: Mapping[str, Array], specs: Specs) -> Sample | None:
    known = {spec.name: spec for spec in specs}
    if sum(array.size for array in tensors.values()) > MOST or (known and not tensors.keys() <= known.keys()):
        return None
    if any(not spec.optional and spec.name not in tensors for spec in specs):
        return None
    found = [_input(name, array, known.get(name, _ANY)) for name, array in tensors.items()]
    whole = tuple(each for each in found if each is not None)
    return Sample(whole) if whole and len(whole) == len(found) else None


def _input(name: str, array: Array, spec: TensorSpec) -> dict[str, Any] | None:
    """V2's input; None for what it cannot carry, and for what does not fit."""
    if array.dtype.kind in "OSU":
        array = from_list(array.ravel().tolist()).reshape(array.shape)
    fit: Array | None = as_bytes(array) if array.dtype == object else cast(array, spec.datatype)
    if fit is None:
        return None
    try:
        fit = fitted(np.atleast_1d(fit) if spec.shape is None else fit, spec)
    except BadRequest:
        return None
    datatype = spec.datatype or datatype_of(fit)
    data = _data(fit)
    if data is None or datatype is None or (fit.dtype == object) != (datatype == "BYTES"):
        return None
    return {"name": name, "shape": list(fit.shape), "datatype": datatype, "data": data}


def _data(array: Array) -> list[Any] | None:
    """Its elements as JSON values; None where JSON has none for them."""
    values: list[Any] = array.ravel().tolist()
    if array.dtype == object:
        try:
            return [value.decode() for value in values]
        except UnicodeDecodeError:
            return None
    return None if any(isinstance(value, float) and not math.isfinite(value) for value in values) else values


def _message(request: Payload) -> dict[str, Any]:
    """Seldon's, for what is no tensor."""
    if request.kind is Kind.TEXT:
        return {"strData": request.value}
    if request.kind is Kind.BYTES:
        return {"binData": base64.b64encode(request.value).decode()}
    return {"jsonData": request.value}


def _told(found: Sample) -> Sample | None:
    """The sample as it comes out of JSON; None where it does not go in, and where it is long."""
    try:
        text = msgspec.json.encode(found)
    except (TypeError, ValueError, OverflowError):  # types of its own, numpy's among them
        return None
    return msgspec.json.decode(text, type=Sample) if len(text) <= _LONGEST else None

"""The inputs of a saved model that takes named tensors, each of a datatype and a shape: a graph's or a signature's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from prefork.errors import BadRequest
from prefork.model.answers import from_list
from prefork.model.casting import fitted, kept, parsed
from prefork.payload import Kind, Payload, TensorSpec

Array = np.ndarray[Any, Any]


class Tensors:
    """Named tensors. Several may come as the columns of one matrix, one without its name."""

    def __init__(self, specs: tuple[TensorSpec, ...]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._required = [spec.name for spec in specs if not spec.optional]

    @property
    def is_batched(self) -> bool:
        """Whether the first axis of all of them is free."""
        shapes = [spec.shape for spec in self._specs.values()]
        return bool(shapes) and all(shape is None or shape[:1] == (-1,) for shape in shapes)

    def described(self) -> tuple[TensorSpec, ...]:
        """As V2's metadata lists them."""
        return tuple(self._specs.values())

    def gather(self, request: Payload) -> dict[str, Array]:
        """The tensors by name, of the datatypes and shapes that are declared. Raises BadRequest naming the input."""
        values = self._named(request)
        unexpected = next((name for name in values if name not in self._specs), None)
        if unexpected is not None:
            raise BadRequest(f"unexpected input {unexpected!r}; the model takes {self._takes()}")
        missing = next((name for name in self._required if name not in values), None)
        if missing is not None:
            raise BadRequest(f"missing input {missing!r}; the model takes {self._takes()}")
        return {name: self._read(spec, values[name]) for name, spec in self._specs.items() if name in values}

    def _named(self, request: Payload) -> dict[str, Any]:
        kind, value = request.kind, request.value
        if kind is Kind.TENSORS or (kind is Kind.JSON and isinstance(value, dict)):
            return dict(value)
        if kind is Kind.TENSOR:
            return self._columns(value, request.names or [])
        if kind in {Kind.JSON, Kind.TEXT, Kind.BYTES}:
            return {self._only(): value}
        raise BadRequest(f"Invalid request data type: {repr(value)[:1000]}")

    def _columns(self, matrix: Array, names: Collection[Any]) -> dict[str, Any]:
        """One array: the only input, or a column for each."""
        if len(self._required) == 1 or len(self._specs) == 1:
            return {self._only(): matrix}
        width = matrix.shape[1] if matrix.ndim == 2 else 0
        chosen = [str(name) for name in names] if len(names) == width and set(names) <= self._specs.keys() else None
        if chosen is None and not names and width == len(self._specs):
            chosen = list(self._specs)
        if not chosen:
            raise BadRequest(f"the inputs have to be named; the model takes {self._takes()}")
        columns = {name: matrix[:, at] for at, name in enumerate(chosen)}
        return {name: each if self._specs[name].datatype == "BYTES" else parsed(each) for name, each in columns.items()}

    def _only(self) -> str:
        candidates = self._required or list(self._specs)
        if len(candidates) != 1:
            raise BadRequest(f"the inputs have to be named; the model takes {self._takes()}")
        return candidates[0]

    def _takes(self) -> str:
        return ", ".join(f"{spec.name} {spec.datatype} {_shape(spec)}" for spec in self._specs.values())

    @staticmethod
    def _read(spec: TensorSpec, value: Any) -> Array:
        try:
            return fitted(kept(as_array(value), spec.datatype), spec)
        except BadRequest as error:
            raise BadRequest(f"input {spec.name!r} {error.message}") from None


def as_array(value: Any) -> Array:
    """A JSON value, text or bytes as an array; one element has the shape [1]. Raises BadRequest for lists of unequal lengths."""
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, list):
        return (
            np.array([value]) if isinstance(value, bool | int | float) else np.fromiter([value], dtype=object, count=1)
        )
    found = from_list(value)
    if found.dtype == object and any(isinstance(element, list) for element in found.ravel().tolist()):
        raise BadRequest("is a list of unequal elements; ragged inputs are not supported, pad them to one length")
    return found


def _shape(spec: TensorSpec) -> str:
    return "of any shape" if spec.shape is None else str(list(spec.shape))

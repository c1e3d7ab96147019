"""A request to try a model with before there is any: the class's own `example`, or one made from what it declares.

example = np.array([[5.1, 3.5, 1.4, 0.2]])           an attribute, or a method without arguments that returns it
example = {"sepal": [5.1], "petal": [1.4]}           inputs by name, for the named style; else a JSON value

Without one, a tensor of zeros for each input that the config, the signature or `init_metadata()` declares with its datatype and shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prefork.model.hooks import found as hook_of
from prefork.model.model import Model
from prefork.model.sample import given, payload, sample
from prefork.payload import DATATYPES, Kind, Payload, TensorSpec

Array = np.ndarray[Any, Any]

_METHODS = ("predict", "transform_input", "transform_output")
"""What can be tried with an array alone, the first that the class has."""
_DTYPES = {**DATATYPES, "BF16": np.dtype("<f4")}
"""BF16 travels as FP32."""


def example(model: Model, declared: Sequence[TensorSpec] | None = None) -> tuple[Payload, str] | None:
    """The request, and where it comes from as the log says it; None where nothing is declared.

    declared: the inputs that the model's config says, if it does: what does not fit to them is no example. What the user's `example()` or `init_metadata()` raises propagates.
    """
    method = next((name for name in _METHODS if hook_of(model.user_object, name) is not None), "")
    request = (_of_config(model, declared or ()) or _request(model)) if method else None
    if request is None:
        return None
    request[0].method = method
    return request


def _of_config(model: Model, declared: Sequence[TensorSpec]) -> tuple[Payload, str] | None:
    """Zeros for what the config says; None where that is not enough, and where the class's own example has all of it."""
    tensors = zeros(declared)
    said = given(model.user_object) if tensors else None
    if not tensors or (said is not None and sample(payload(said, named=True), tuple(declared)) is not None):
        return None
    return Payload(Kind.TENSORS, tensors), "zeros for what its config says"


def _request(model: Model) -> tuple[Payload, str] | None:
    said = given(model.user_object)
    if said is not None:
        return payload(said, named=model.spec.inputs is not None), "the class's example"
    if model.spec.inputs is not None:
        tensors = zeros(model.spec.inputs)
        return (Payload(Kind.TENSORS, tensors), "zeros for what its signature says") if tensors else None
    tensors = zeros(model.described.inputs or ())
    return (_one(tensors), "zeros for what init_metadata() says") if tensors else None


def zeros(specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """A tensor for each input that needs one, or for all where none does; nothing where one of them does not say what it is."""
    needed = [spec for spec in specs if not spec.optional] or specs
    if any(spec.datatype not in _DTYPES or spec.shape is None for spec in needed):
        return {}
    return {spec.name: _zero(spec) for spec in needed}


def _zero(spec: TensorSpec) -> Array:
    shape = tuple(1 if size < 0 else size for size in spec.shape or ())
    if spec.datatype == "BYTES":
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, _DTYPES[spec.datatype])


def _one(tensors: dict[str, Array]) -> Payload:
    """Seldon's one X, where there is one; several stay apart and become its columns."""
    if len(tensors) == 1:
        return Payload(Kind.TENSOR, next(iter(tensors.values())))
    return Payload(Kind.TENSORS, tensors)

"""Named arrays against a model's signature, for protocols whose JSON carries no datatypes.

V1 and MLflow send bare JSON values, so a number is int64 or float64 and a text is a text until the signature says
more. `fit` converts what the sender can have meant (an integer may become a float and 1.0 an integer; 1.5 never does,
nor does text) or refuses with a BadRequest that names the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefork.errors import BadRequest
from prefork.payload import DATATYPES, ModelSpec, TensorSpec, datatype_of
from prefork.protocols.values import to_bytes

Array = NDArray[Any]


def fit(arrays: dict[str, Array], spec: ModelSpec) -> dict[str, Array]:
    """The arrays as the model's inputs: every required one there, no other, each of its datatype and shape.

    Text becomes `bytes` in an object array. A model without a signature takes every name.
    Raises BadRequest naming the input.
    """
    if spec.inputs is None:
        return {name: to_bytes(array, name) for name, array in arrays.items()}
    inputs = {tensor.name: tensor for tensor in spec.inputs}
    _check_names(arrays, inputs)
    return {name: convert(array, inputs[name]) for name, array in arrays.items()}


def only_input(spec: ModelSpec) -> TensorSpec | None:
    """The one input that a value without a name can mean; None where there is none, or more than one."""
    inputs = spec.inputs or ()
    required = [tensor for tensor in inputs if not tensor.optional] or list(inputs)
    return required[0] if len(required) == 1 else None


def convert(array: Array, tensor: TensorSpec) -> Array:
    """The array in the input's shape and datatype; BF16 travels as float32. Raises BadRequest naming the input.

    A column may be [n] or [n,1], and one element have any shape of one: JSON's senders do not tell these apart.
    """
    array = _shaped(array, tensor)
    if tensor.datatype in {"", "BYTES"}:
        return _text(array, tensor)
    target = DATATYPES.get(tensor.datatype, np.dtype("<f4"))
    if array.dtype == target:
        return array
    if array.size and not _keeps(array, target):
        raise BadRequest(f"input '{tensor.name}' is {datatype_of(array)}, the model expects {tensor.datatype}")
    return _cast(array, target, tensor)


def _shaped(array: Array, tensor: TensorSpec) -> Array:
    if tensor.shape is None or tensor.accepts(array.shape):
        return array
    if array.size == 1 and all(size in {1, -1} for size in tensor.shape):
        return array.reshape((1,) * len(tensor.shape))
    for shape in ((*array.shape, 1), array.shape[:1]):
        if array.ndim <= 2 and array.size == np.prod(shape) and tensor.accepts(shape):
            return array.reshape(shape)
    raise BadRequest(
        f"unexpected shape for input '{tensor.name}': expected {list(tensor.shape)}, got {list(array.shape)}"
    )


def _check_names(arrays: dict[str, Array], inputs: dict[str, TensorSpec]) -> None:
    for name in arrays:
        if name not in inputs:
            raise BadRequest(f"unexpected input '{name[:100]}'; the model takes {', '.join(inputs)}")
    missing = [name for name, tensor in inputs.items() if not tensor.optional and name not in arrays]
    if missing:
        raise BadRequest(f"missing input '{missing[0]}'; the model takes {', '.join(inputs)}")


def _text(array: Array, tensor: TensorSpec) -> Array:
    if tensor.datatype == "BYTES" and not array.size:
        return array.astype(object)
    if tensor.datatype == "BYTES" and array.dtype.kind not in "UO":
        raise BadRequest(f"input '{tensor.name}' is {datatype_of(array)}, the model expects BYTES")
    return to_bytes(array, tensor.name)


def _keeps(array: Array, target: np.dtype[Any]) -> bool:
    """Whether the array's kind of JSON value may stand for the target's, and with these values."""
    if target.kind == "b" or array.dtype.kind not in "iuf":
        return array.dtype.kind == target.kind
    if target.kind == "f" or array.dtype.kind in "iu":
        return True
    return bool(np.all(np.isfinite(array) & (np.floor(array) == array)))


def _cast(array: Array, target: np.dtype[Any], tensor: TensorSpec) -> Array:
    if target.kind in "iu" and array.size:
        limits = np.iinfo(target)
        # Python's integers: int64 and uint64 have no common numpy type to compare in.
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise _outside(tensor)
    with np.errstate(over="raise", under="ignore"):
        try:
            return array.astype(target)
        except FloatingPointError:
            raise _outside(tensor) from None


def _outside(tensor: TensorSpec) -> BadRequest:
    return BadRequest(f"input '{tensor.name}' has values outside {tensor.datatype}")

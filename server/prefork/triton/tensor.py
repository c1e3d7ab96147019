"""`Tensor`, and between Triton's names of datatypes and numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefork.payload import DATATYPES, datatype_of
from prefork.protocols.tensors import object_array, to_binary
from prefork.repository import triton_types
from prefork.repository.triton_bytes import elements

Array = np.ndarray[Any, Any]


class Tensor:
    """A named array. That of a request may be a view of memory which is used again once the request is answered."""

    def __init__(self, name: str, array: Array) -> None:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"Tensor {name!r} takes a numpy array, not a {type(array).__name__}")
        self._name = name
        self._array = array

    def name(self) -> str:
        """Its name."""
        return self._name

    def as_numpy(self) -> Array:
        """The array; text is `bytes` in an object array."""
        return self._array

    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return tuple(self._array.shape)

    def triton_dtype(self) -> str:
        """`TYPE_FP32` and its like."""
        return numpy_to_triton_type(self._array.dtype)

    def is_cpu(self) -> bool:
        """Whether it is in the CPU's memory: always."""
        return True

    def to_dlpack(self) -> Any:
        """A DLPack capsule of the array."""
        return self._array.__dlpack__()

    def __dlpack__(self, **how: Any) -> Any:
        """As other libraries ask for it."""
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        """Where it is, in DLPack's words."""
        return self._array.__dlpack_device__()

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """A tensor of what has DLPack, without a copy where that is in the CPU's memory."""
        return Tensor(name, np.from_dlpack(tensor))


def triton_string_to_numpy(name: str) -> np.dtype[Any]:
    """The dtype of `TYPE_FP32` and its like. Raises ValueError for one that numpy does not have."""
    found = DATATYPES.get(triton_types.DATATYPES.get(name, ""))
    if found is None:
        raise ValueError(f"numpy has no dtype for {name!r}")
    return found


def numpy_to_triton_type(dtype: Any) -> str:
    """`TYPE_FP32` and its like. Raises ValueError for a dtype that Triton has no name for."""
    name = datatype_of(np.empty(0, dtype))
    if name is None:
        raise ValueError(f"there is no datatype for numpy's {np.dtype(dtype)}")
    return triton_types.TYPES[name]


def serialize_byte_tensor(array: Array) -> Array:
    """The elements of an array of text or bytes, each behind its length in 4 bytes, as one array of bytes."""
    texts = [each if isinstance(each, bytes) else str(each) for each in array.ravel().tolist()]
    return np.frombuffer(to_binary("", np.array(texts, object), "BYTES"), np.uint8)


def deserialize_bytes_tensor(data: Any) -> Array:
    """What `serialize_byte_tensor` was given, flat, as `bytes` in an object array. Raises ValueError for a length beyond the end."""
    return object_array(list(elements(bytes(data))))

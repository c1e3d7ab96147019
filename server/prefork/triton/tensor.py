"""`Tensor`, and between Triton's names of datatypes and numpy's."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from prefork.payload import DATATYPES, datatype_of

Array = np.ndarray[Any, Any]

_LENGTH = struct.Struct("<I")
_NAMES = {f"TYPE_{'STRING' if name == 'BYTES' else name}": dtype for name, dtype in DATATYPES.items()}
"""BF16 is not among them: numpy has no such dtype."""


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
    found = _NAMES.get(name)
    if found is None:
        raise ValueError(f"numpy has no dtype for {name!r}; there are {', '.join(_NAMES)}")
    return found


def numpy_to_triton_type(dtype: Any) -> str:
    """`TYPE_FP32` and its like. Raises ValueError for a dtype that Triton has no name for."""
    name = datatype_of(np.empty(0, dtype))
    if name is None:
        raise ValueError(f"there is no datatype for numpy's {np.dtype(dtype)}")
    return "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}"


def serialize_byte_tensor(array: Array) -> Array:
    """The elements of an array of text or bytes, each behind its length in 4 bytes, as one array of bytes."""
    pieces = bytearray()
    for element in array.ravel().tolist():
        raw = element if isinstance(element, bytes) else str(element).encode()
        pieces += _LENGTH.pack(len(raw)) + raw
    return np.frombuffer(bytes(pieces), dtype=np.bytes_ if not pieces else np.uint8)


def deserialize_bytes_tensor(data: Any) -> Array:
    """What `serialize_byte_tensor` was given, flat, as `bytes` in an object array. Raises ValueError for a length beyond the end."""
    raw, at, found = bytes(data), 0, []
    while at < len(raw):
        if at + 4 > len(raw) or at + 4 + _LENGTH.unpack_from(raw, at)[0] > len(raw):
            raise ValueError(f"an element at {at} ends behind the {len(raw)} bytes that there are")
        end = at + 4 + _LENGTH.unpack_from(raw, at)[0]
        found.append(raw[at + 4 : end])
        at = end
    return np.fromiter(found, object, len(found))

"""One call of a torch module: arrays become tensors on its device, and whatever it answers becomes arrays by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from prefork.errors import BadRequest

Array = np.ndarray[Any, Any]

_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "FP32",  # numpy has none
    "float32": "FP32",
    "float64": "FP64",
}
_MACHINES_FAULT = ("can't allocate memory", "out of memory", "CUDA", "CUBLAS", "cuDNN", "CUDNN")
_QUOTED = 300


class Call:
    """Runs a module.

    call: takes the tensors by name. dtypes: torch's, of the inputs for which they are known. floats: torch's for numbers out of
    JSON, which have no datatype, of the other inputs.
    """

    def __init__(
        self,
        torch: Any,
        call: Callable[[Mapping[str, Any]], Any],
        dtypes: Mapping[str, Any],
        device: Any,
        floats: Any = None,
    ) -> None:
        self._torch = torch
        self._call = call
        self._dtypes = dtypes
        self._device = device
        self._floats = floats

    def __call__(self, given: dict[str, Array], _parameters: Mapping[str, Any]) -> dict[str, Array]:
        """The outputs by name. Raises BadRequest for what the module refuses, and what is no fault of the inputs as it is."""
        tensors = {name: self._tensor(name, array) for name, array in given.items()}
        try:
            with self._torch.inference_mode():
                result = self._call(tensors)
        except (AssertionError, IndexError, RuntimeError, ValueError) as error:
            if any(word in str(error) for word in _MACHINES_FAULT):
                raise
            raise BadRequest(f"the model does not take these inputs: {last_line(error)}") from error
        places = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
        return {name: self._array(name, value, places) for name, value in named_outputs(result)}

    def _tensor(self, name: str, array: Array) -> Any:
        if array.dtype.kind not in "biuf":
            raise BadRequest(f"input {name!r} has no numbers; the model takes tensors of numbers")
        if not array.flags.writeable or any(stride < 0 for stride in array.strides):
            array = array.copy()  # the request's bytes are not the model's to change
        tensor = self._torch.from_numpy(array)
        dtype = self._dtypes.get(name)
        if dtype is None and array.dtype == np.float64:
            dtype = self._floats
        return tensor.to(device=self._device, dtype=dtype)

    def _array(self, name: str, value: Any, places: set[int]) -> Array:
        if not isinstance(value, self._torch.Tensor):
            if isinstance(value, bool | int | float):
                return np.asarray(value)
            raise TypeError(f"the model answers a {type(value).__name__} as {name!r}, which is no tensor")
        tensor = value.to_dense() if value.is_sparse else value
        tensor = tensor.dequantize() if tensor.is_quantized else tensor
        if tensor.dtype == self._torch.bfloat16:
            tensor = tensor.float()
        if tensor.untyped_storage().data_ptr() in places:
            tensor = tensor.clone()  # an input given back: its memory is the next request's
        found: Array = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().numpy()
        return found


def named_outputs(result: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The outputs by name: a dictionary's and a named tuple's have some, others are numbered; what is nested is joined by `_`."""
    if isinstance(result, Mapping):
        pairs = [(str(key), value) for key, value in result.items()]
    elif isinstance(result, tuple | list):
        keys = getattr(result, "_fields", None) or [
            f"output_{at}" if not name else str(at) for at in range(len(result))
        ]
        pairs = list(zip(keys, result, strict=True))
    else:
        if result is not None:
            yield name or "output", result
        return
    for key, value in pairs:
        yield from named_outputs(value, f"{name}_{key}" if name else key)


def datatype_of(dtype: Any) -> str:
    """V2's name of a torch datatype; empty where it has none."""
    return _DATATYPES.get(str(dtype).removeprefix("torch."), "")


def shape_of(value: Any) -> tuple[int, ...]:
    """Of a tensor, with -1 for an axis that torch.export has left free."""
    return tuple(size if isinstance(size, int) else -1 for size in value.shape)


def last_line(error: Exception) -> str:
    """The last line, which says what was wrong: TorchScript's and the loader's messages begin with where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1].removeprefix("RuntimeError: ") if lines else ""
    return said[:_QUOTED] or type(error).__name__

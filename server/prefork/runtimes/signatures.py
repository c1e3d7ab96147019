"""What a TensorFlow model can be asked: its signatures, each with named dense tensors in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from prefork.errors import BadRequest, ModelLoadError
from prefork.model.tensor_inputs import Tensors
from prefork.payload import Payload, TensorSpec

Array = np.ndarray[Any, Any]

DEFAULT = "serving_default"
"""The name that TensorFlow gives the signature that is meant where none is named."""
REQUESTED = "signature_name"
"""The request parameter that names one, as TensorFlow Serving's API calls it."""

_TYPES = {
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "bool": "BOOL",
    "string": "BYTES",
}


class Signature:
    """One function of a model. call: takes TensorFlow's tensors by name and gives them by name."""

    def __init__(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], call: Callable[..., Mapping[str, Any]]
    ) -> None:
        self.takes = Tensors(tuple(inputs))
        self.outputs = tuple(outputs)
        self._call = call

    def __call__(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs. Raises BadRequest for values that the model does not take."""
        import tensorflow as tf

        datatypes = {spec.name: spec.datatype for spec in self.takes.described()}
        feed = {name: _tensor(array, datatypes[name]) for name, array in given.items()}
        try:
            results = self._call(**feed)
            return {spec.name: _array(results[spec.name]) for spec in self.outputs}
        except tf.errors.InvalidArgumentError as error:
            raise BadRequest(f"the model does not take these inputs: {reason(str(error.message))}") from error


class Asked(NamedTuple):
    """A signature and the tensors that it is called with."""

    signature: Signature
    given: dict[str, Array]


class Signatures:
    """A model's signatures, of which a request may name another one than the default.

    refused: those that cannot be served, each with the reason. owner: what holds the model's variables.
    """

    def __init__(
        self,
        found: Mapping[str, Signature],
        default: str,
        refused: Mapping[str, str] | None = None,
        *,
        owner: Any = None,
    ) -> None:
        self._found = dict(found)
        self._default = default
        self._refused = dict(refused or {})
        self._owner = owner

    @property
    def default(self) -> Signature:
        """The one that is meant where none is named."""
        return self._found[self._default]

    @property
    def facts(self) -> str:
        """For the log."""
        others = [name for name in self._found if name != self._default]
        return f"signature {self._default}" + (f" (and {', '.join(others)})" if others else "")

    @property
    def is_batched(self) -> bool:
        """Whether the default takes any number of rows."""
        return self.default.takes.is_batched

    def described(self) -> tuple[TensorSpec, ...]:
        """The inputs of the default."""
        return self.default.takes.described()

    def gather(self, request: Payload) -> Asked:
        """The signature that is asked for and its tensors. Raises BadRequest."""
        name = (request.parameters or {}).get(REQUESTED) or self._default
        if name in self._refused:
            raise BadRequest(self._refused[name])
        signature = self._found.get(name) if isinstance(name, str) else None
        if signature is None:
            raise BadRequest(f"{REQUESTED} {str(name)[:60]!r}: the model has {', '.join(self._found)}")
        return Asked(signature, signature.takes.gather(request))

    def close(self) -> None:
        """Let go of the functions and of the variables that they hold."""
        self._found.clear()
        self._owner = None


class Loaded(NamedTuple):
    """A model's signatures, and what is to be said of it in the log."""

    signatures: Signatures
    facts: str


def run(asked: Asked, _parameters: Mapping[str, Any]) -> dict[str, Array]:
    """Call what was asked for."""
    return asked.signature(asked.given)


def choose(names: Sequence[str], said: str | None) -> str:
    """The signature that is meant: the one that is said, else the default, else the only one. Raises ModelLoadError with all."""
    listed = ", ".join(names) or "none"
    if said is not None:
        if said not in names:
            raise ModelLoadError(f"parameters: signature {said!r}: the model has {listed}")
        return said
    if DEFAULT in names:
        return DEFAULT
    if len(names) != 1:
        raise ModelLoadError(f"it has no signature {DEFAULT!r}; name one in the parameter `signature`, it has {listed}")
    return names[0]


def spec(what: str, name: str, tensor: Any) -> TensorSpec:
    """Of anything with a dtype and a shape. Raises ModelLoadError for what is no dense tensor that protocols carry."""
    for kind in ("ragged", "sparse"):
        if kind.capitalize() in type(tensor).__name__ or getattr(tensor, kind, False):
            raise refusal(what, name, kind)
    said = getattr(tensor.dtype, "name", tensor.dtype)
    datatype = _TYPES.get(said)
    if datatype is None:
        raise ModelLoadError(f"the {what} {name!r} has the type {said}, which no protocol carries")
    shape = tensor.shape
    if getattr(shape, "rank", 0) is None:
        return TensorSpec(datatype, None, name)
    return TensorSpec(datatype, tuple(-1 if size is None else int(size) for size in shape), name)


def refusal(what: str, name: str, kind: str) -> ModelLoadError:
    """Of a tensor that is not dense."""
    return ModelLoadError(
        f"the {what} {name!r} is a {kind} tensor; only dense ones are served: export a signature with a padded tensor, and "
        "convert in the model (tf.RaggedTensor.from_tensor, tf.sparse.from_dense, or to_tensor for an output)"
    )


def reason(message: str) -> str:
    """The line that says what was wrong: the last one before those that name a node of the graph."""
    lines = [line.strip() for line in message.splitlines()]
    own = [line.partition(" [Op:")[0] for line in lines if line and not line.startswith("[[")]
    return own[-1] if own else message


def _tensor(array: Array, datatype: str) -> Any:
    import tensorflow as tf

    if datatype == "BYTES":
        return tf.constant(array, dtype=tf.string)
    return tf.cast(array, tf.bfloat16) if datatype == "BF16" else tf.constant(array)


def _array(tensor: Any) -> Array:
    """Texts as `bytes`; bfloat16, which numpy lacks, as float32."""
    array = tensor.numpy()
    if tensor.dtype.name == "string":
        return np.asarray(array, dtype=object)
    return np.asarray(array.astype(np.float32) if tensor.dtype.name == "bfloat16" else array)

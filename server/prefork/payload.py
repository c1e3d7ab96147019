"""What crosses every boundary: the decoded request to a model and its decoded answer.

A payload is a small head (strings and JSON values) and numpy arrays, so that it can be framed between processes
without pickle. Protocols make payloads out of bytes, models make them out of what the user's code returns; neither
knows the other.
"""

from __future__ import annotations

import enum
import math
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np

DATATYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}
"""The Open Inference Protocol's names and numpy's; BF16 has no numpy dtype of its own and travels as FP32."""

_NAMES = {dtype: name for name, dtype in DATATYPES.items()}


def datatype_of(array: np.ndarray[Any, Any]) -> str | None:
    """The V2 datatype of an array; text, bytes and objects are BYTES, an extension's bfloat16 is BF16.

    None for a dtype that V2 has no name for (complex, datetime).
    """
    name = _NAMES.get(array.dtype)
    if name is not None:
        return name
    if array.dtype.kind in "SU":
        return "BYTES"
    if array.dtype.name == "bfloat16":
        return "BF16"
    return _NAMES.get(array.dtype.newbyteorder("<"))


class Kind(enum.IntEnum):
    """What `Payload.value` holds."""

    TENSOR = 0
    """One array: Seldon's X, whose columns `names` names."""
    TENSORS = 1
    """Named arrays, `dict[str, ndarray]`: V2's inputs and outputs. BYTES elements are `bytes` in an object array."""
    JSON = 2
    """Any JSON value; an answer may hold numpy arrays and scalars inside."""
    TEXT = 3
    """A `str`."""
    BYTES = 4
    """A `bytes`."""
    RAW = 5
    """The protocol's whole message, parsed but not interpreted: the `*_raw` hooks and their answers."""
    MANY = 6
    """A list of request payloads: Seldon's aggregate."""
    FEEDBACK = 7
    """A `Feedback`."""


class Meta(dict[str, Any]):
    """A request's `meta` as a model sees it: the dict, and `meta["cancelled"]()`, whether nobody waits for the answer any more.

    Where the model answers through a sender, that is `meta["sender"]`, which is not kept alive by this. Neither is an item: what
    goes over the items of `meta`, or encodes it, does not meet them.
    """

    __slots__ = ("_cancelled", "_sender")

    def __init__(self, meta: Mapping[str, Any], cancelled: Callable[[], bool] | None) -> None:
        super().__init__(meta)
        self._cancelled = cancelled or _never
        self._sender: Callable[[], Any] | None = None

    def lend(self, sender: Callable[[], Any]) -> None:
        """Have `meta["sender"]` be what this gives, if it still gives something."""
        self._sender = sender

    def __missing__(self, key: str) -> Any:
        return _lent(key, self._cancelled, self._sender)


class NoMeta(UserDict[str, Any]):
    """As `Meta`, of a request without `meta`: as long as nobody writes into it, it is false, and null in JSON."""

    def __init__(self, cancelled: Callable[[], bool] | None) -> None:
        super().__init__()
        self._cancelled = cancelled or _never
        self._sender: Callable[[], Any] | None = None

    def lend(self, sender: Callable[[], Any]) -> None:
        """Have `meta["sender"]` be what this gives, if it still gives something."""
        self._sender = sender

    def __missing__(self, key: str) -> Any:
        return _lent(key, self._cancelled, self._sender)

    def __repr__(self) -> str:
        return repr(self.data or None)


def _lent(key: str, cancelled: Callable[[], bool], sender: Callable[[], Any] | None) -> Any:
    if key == "cancelled":
        return cancelled
    found = sender() if key == "sender" and sender is not None else None
    if found is None:
        raise KeyError(key)
    return found


def _never() -> bool:
    return False


class Cost(msgspec.Struct, gc=False):
    """What a request has cost: nanoseconds that it waited and that the model computed, for the whole of its execution.

    batch: rows in that execution. lead: whether the execution is to be counted here; exactly one of its answers says so.
    """

    queue_ns: int = 0
    compute_ns: int = 0
    batch: int = 1
    lead: bool = True


class Payload(msgspec.Struct, gc=False):
    """One request to a model, or one answer of a model.

    method: the hook that is meant (`predict`, `transform_input`, `route`, ...).
    value: what `kind` says.
    names: the names of a TENSOR's columns; None where the request or the model gives none.
    meta: the request's own `meta` object, by reference; the model may write into it.
    parameters: V2's request or response parameters.
    tags, metrics: of an answer, what the model's hooks gave for this request.
    message: of a request, the protocol's parsed message, for hooks that want it whole.
    cancelled: of a request, whether nobody waits for the answer any more; None where nobody can tell.
    deadline: of a request, when its time is up, in seconds of the monotonic clock, which is one for all processes. begun: of one
    that was given up, whether the model had it by then.
    cost: of an answer, what it has cost, where somebody measured; of a request, there from the moment at which a batch with it began.
    sender: of a request, what its model is to answer through, until it is called. again: of one that its model has handed back,
    how it did that.
    """

    kind: Kind
    value: Any
    method: str = "predict"
    names: list[Any] | None = None
    meta: dict[str, Any] | None = None
    parameters: Mapping[str, Any] | None = None
    tags: dict[str, Any] | None = None
    metrics: list[dict[str, Any]] | None = None
    message: Any = None
    cancelled: Callable[[], bool] | None = None
    cost: Cost | None = None
    sender: Any = None
    again: Any = None
    deadline: float = math.inf
    begun: bool = True

    def meta_for_model(self) -> Meta | NoMeta:
        """The `meta` for a hook that takes it; what the hook writes into it is seen here."""
        meta = self.meta
        if isinstance(meta, Meta | NoMeta):
            return meta
        seen = NoMeta(self.cancelled) if meta is None else Meta(meta, self.cancelled)
        self.meta = cast("dict[str, Any]", seen)
        return seen


def rows(request: Payload) -> int:
    """Rows of a request, as statistics count them: of the first axis of what may be a batch, else 1."""
    value = request.value
    if isinstance(value, dict):
        value = next((each for each in value.values() if hasattr(each, "shape")), None)
    shape: Sequence[int] = getattr(value, "shape", ())
    return shape[0] if len(shape) > 1 else 1


class Feedback(msgspec.Struct):
    """What Seldon's send-feedback carries: features and truth are float arrays, `routing` the chosen branch or None."""

    features: np.ndarray[Any, Any]
    names: list[Any]
    reward: float
    truth: np.ndarray[Any, Any]
    routing: int | None


class TensorSpec(msgspec.Struct, frozen=True):
    """What a named input or output looks like, and the annotation that says so.

    `Annotated[np.ndarray, TensorSpec("FP32", (-1, 4))]` is an FP32 tensor of any number of rows and four columns.

    datatype: a name out of `DATATYPES` (or BF16); empty accepts every one.
    shape: one size an axis, -1 for any; None accepts every shape.
    name, optional: filled in from the signature.
    """

    datatype: str = ""
    shape: tuple[int, ...] | None = None
    name: str = ""
    optional: bool = False

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of that shape fits."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(w in (-1, n) for w, n in zip(self.shape, shape, strict=True))


class Sample(msgspec.Struct, frozen=True):
    """A request that a model is known to take, in JSON values and small enough to be shown.

    inputs: V2's, each with name, shape, datatype and its elements as a flat list under `data`. message: where the request is no
    tensor, Seldon's message; then there are no inputs.
    """

    inputs: tuple[dict[str, Any], ...] = ()
    message: dict[str, Any] = {}


class ModelSpec(msgspec.Struct, frozen=True):
    """What a model tells about itself. `inputs` is None when it takes whatever comes (Seldon's `X, names`).

    streams: an answer may have several parts, so that only the streaming endpoints can carry it.
    raw: the methods whose hook wants the protocol's message as it was sent (`predict_raw` and its like).
    labels: of an output's classes, by its name. max_rows: that a request may have along the first axis of its inputs; 0 is any number.
    example: the model's own, for showing; None where it has none. is_batched: whether requests may be put together: the first axis
    of what it takes is free.
    """

    name: str
    version: str = "1"
    platform: str = "python"
    inputs: tuple[TensorSpec, ...] | None = None
    outputs: tuple[TensorSpec, ...] | None = None
    streams: bool = False
    raw: frozenset[str] = frozenset()
    labels: dict[str, tuple[str, ...]] = {}
    max_rows: int = 0
    example: Sample | None = None
    is_batched: bool = True

"""Many requests as one, along the first axis, and the one answer as theirs.

Only predictions whose arrays agree in everything but the number of rows are merged, and only where the model cannot tell
them apart by anything else: column names, parameters, and what `meta` carries for the model. `timeout` and `priority`
are for the queue, and `puid`, `requestPath`, `routing` and `metrics` are Seldon's own accounts: these keep nobody apart,
and the model is not shown them in a merged call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from prefork.errors import BadAnswer
from prefork.payload import Kind, ModelSpec, Payload, TensorSpec

Array = np.ndarray[Any, Any]

_ACCOUNTS = frozenset({"puid", "requestPath", "routing", "metrics"})
_FOR_THE_QUEUE = frozenset({"timeout", "priority"})
_COMPARED = 256
"""Elements of an input without rows up to which it is compared."""

_RULE = "with batching, predict must answer one row for each row of its input, along the first axis"


class Merge:
    """Merges requests to a model of that spec.

    An input whose first axis the spec fixes (`threshold: float` has the shape [1]) has no rows: requests have to agree
    in its value, and it is passed on once.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._merges = not spec.streams and "predict" not in spec.raw
        self._inputs = None if spec.inputs is None else {tensor.name: tensor for tensor in spec.inputs}
        self._fixed = {name for name, tensor in (self._inputs or {}).items() if _is_fixed(tensor)}
        self._queue_words = _FOR_THE_QUEUE - set(self._inputs or ())
        required = [tensor.name for tensor in spec.inputs or () if not tensor.optional]
        self._takes_matrix = not self._fixed or (len(required) == 1 and required[0] not in self._fixed)

    def measure(self, request: Payload) -> tuple[int, Any]:
        """The rows of a request, and the key that it shares with those that it can be merged with; None for nobody."""
        if request.method != "predict" or not self._merges:
            return _rows(request), None
        tensors = self._tensors(request)
        if tensors is None:
            return _rows(request), None
        rows, shapes = tensors
        try:
            return rows, (request.kind, shapes, self._words(request))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return rows, None  # what JSON cannot say cannot be compared

    def for_queue(self, request: Payload) -> Mapping[str, Any] | None:
        """The parameters, where `timeout` and `priority` in them mean the queue; a model with such an input has them for itself."""
        return (
            request.parameters
            if self._queue_words == _FOR_THE_QUEUE or not request.parameters
            else {
                name: value
                for name, value in request.parameters.items()
                if name not in (_FOR_THE_QUEUE - self._queue_words)
            }
        )

    def merge(self, requests: Sequence[Payload]) -> Payload:
        """Requests of one key as one, in their order. It is cancelled when all of them are."""
        first = requests[0]
        value: Any
        if first.kind is Kind.TENSOR:
            value = np.concatenate([request.value for request in requests])
        else:
            value = {
                name: array if name in self._fixed else np.concatenate([request.value[name] for request in requests])
                for name, array in first.value.items()
            }
        meta = copy.deepcopy(self._shared(first)) or None
        parameters = self._for_model(first.parameters) or None
        cancelled = _all([request.cancelled for request in requests])
        return Payload(first.kind, value, first.method, first.names, meta, parameters, cancelled=cancelled)

    def write_back(self, merged: Payload, requests: Sequence[Payload]) -> None:
        """What the model wrote into the `meta` of the merged request, into that of each."""
        before, after = self._shared(requests[0]), dict(merged.meta or {})
        written = {name: value for name, value in after.items() if name not in before or before[name] != value}
        if written:
            for request in requests:
                request.meta = {**(request.meta or {}), **written}

    def _tensors(self, request: Payload) -> tuple[int, Any] | None:
        """The rows, and all but the rows; None where there are no rows, or not as many in each array."""
        if request.kind is Kind.TENSOR:
            array = request.value
            if not _has_rows(array) or not self._takes_matrix or (self._fixed and request.names):
                return None
            return len(array), (array.dtype, array.shape[1:])
        if request.kind is not Kind.TENSORS:
            return None
        rows = {
            len(array) if _has_rows(array) else 0 for name, array in request.value.items() if name not in self._fixed
        }
        shapes = [self._shape(name, array) for name, array in request.value.items()]
        if len(rows) != 1 or rows == {0} or None in shapes:
            return None
        return rows.pop(), shapes

    def _shape(self, name: str, array: Array) -> Any:
        """What has to be equal about one input; None where it cannot be merged."""
        if name in self._fixed:
            if array.size > _COMPARED:
                return None
            return name, array.dtype, array.shape, array.tolist() if array.dtype == object else array.tobytes()
        declared = None if self._inputs is None else self._inputs.get(name)
        if self._inputs is not None and (declared is None or not _fits(declared, array.shape)):
            return None
        return name, array.dtype, array.shape[1:]

    def _words(self, request: Payload) -> bytes:
        """What the model is told besides the arrays."""
        if not (request.names or request.parameters or request.meta):
            return b""
        words = [request.names or None, self._for_model(request.parameters) or None, self._shared(request) or None]
        return msgspec.json.encode(words, order="deterministic") if any(words) else b""

    def _for_model(self, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
        return {name: value for name, value in (parameters or {}).items() if name not in self._queue_words}

    def _shared(self, request: Payload) -> dict[str, Any]:
        """What `meta` carries for the model; an empty object or list is as none."""
        found = {name: value for name, value in (request.meta or {}).items() if value and name not in _ACCOUNTS}
        if isinstance(found.get("parameters"), Mapping):
            found["parameters"] = self._for_model(found["parameters"])
            if not found["parameters"]:
                del found["parameters"]
        return found


def split(answer: Payload, rows: Sequence[int]) -> list[Payload]:
    """The answer to a merged request as an answer for each, which has so many rows. Arrays are views of the answer's.

    Each has the tags; metrics are left out, as they are to be counted once. Raises BadAnswer for an answer without
    rows, or with others than the request had.
    """
    cut = _cutter(answer, sum(rows))
    found, start = [], 0
    for count in rows:
        tags = None if answer.tags is None else dict(answer.tags)
        part = cut(start, start + count)
        found.append(Payload(answer.kind, part, answer.method, answer.names, answer.meta, answer.parameters, tags))
        start += count
    return found


def _cutter(answer: Payload, total: int) -> Callable[[int, int], Any]:
    kind, value = answer.kind, answer.value
    if kind in {Kind.TENSOR, Kind.JSON} and isinstance(value, np.ndarray | list):
        _check("", value, total)
        return lambda start, end: value[start:end]
    if kind in {Kind.TENSORS, Kind.JSON} and isinstance(value, dict):
        for name, field in value.items():
            _check(f"'{name}' with ", field, total)
        return lambda start, end: {name: field[start:end] for name, field in value.items()}
    raise BadAnswer(f"the model answered a {type(value).__name__}, which has no rows, to a batch of {total}: {_RULE}")


def _check(name: str, value: Any, total: int) -> None:
    if isinstance(value, np.ndarray):
        found, said = (len(value) if value.ndim else None), f"the shape {list(value.shape)}"
    elif isinstance(value, list):
        found, said = len(value), f"{len(value)} elements"
    else:
        found, said = None, f"a {type(value).__name__}"
    if found != total:
        raise BadAnswer(f"the model answered {name}{said} to a batch of {total} rows: {_RULE}")


def _rows(request: Payload) -> int:
    """What a request that is not merged counts: the rows of its array, or of its first array, else 1."""
    value: Any = next(iter(request.value.values()), None) if request.kind is Kind.TENSORS else request.value
    return len(value) if _has_rows(value) else 1


def _has_rows(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0 and len(value) > 0


def _is_fixed(tensor: TensorSpec) -> bool:
    return tensor.shape is not None and tensor.shape[:1] != (-1,)


def _fits(tensor: TensorSpec, shape: tuple[int, ...]) -> bool:
    """Whether the shape is one that the model takes with any number of rows; [n] and [n,1] stand for each other."""
    columns = shape[:1] if len(shape) == 2 and shape[1] == 1 else (*shape, 1) if len(shape) == 1 else shape
    return tensor.accepts(shape) or tensor.accepts(columns)


def _all(cancelled: Sequence[Callable[[], bool] | None]) -> Callable[[], bool] | None:
    asked = [one for one in cancelled if one is not None]
    if len(asked) < len(cancelled):
        return None
    return lambda: all(one() for one in asked)

"""What a `predict` of the named style returns: V2 outputs by name, and what its return annotation says of them.

dict[str, np.ndarray]    outputs by name, which are known only once it ran
a TypedDict              outputs whose names, datatypes and shapes are known
an array, float, str...  one output, called `predict`
Iterator[one of these]   a stream, each part one of these
"""

from __future__ import annotations

import collections.abc
import sys
import typing
from collections.abc import Mapping
from typing import Any, NotRequired, Required, get_args, get_origin

import msgspec
import numpy as np

from prefork.errors import BadAnswer
from prefork.model import answers
from prefork.model.casting import as_bytes, cast
from prefork.model.hints import Array, evaluated, meaning
from prefork.model.hooks import Hook, is_stream
from prefork.payload import Kind, Payload, TensorSpec, datatype_of

_ITERATORS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)


class Returns:
    """A return annotation; None is none.

    outputs: what it declares; None where names or types are known only from a result.
    streams: whether it is an iterator of parts, or `hook` is a generator function.
    """

    def __init__(self, annotation: Any, hook: Hook) -> None:
        self.streams = is_stream(hook)
        if get_origin(annotation) in _ITERATORS:
            self.streams = True
            annotation = get_args(annotation)[0]
        self._fields = _fields(annotation) if typing.is_typeddict(annotation) else None
        self._one = _one(annotation) if self._fields is None else None
        self.outputs: tuple[TensorSpec, ...] | None = None
        if self._fields is not None:
            self.outputs = tuple(self._fields.values())
        elif self._one is not None:
            self.outputs = (self._one,)

    def answer(self, result: Any, request: Payload) -> Payload:
        """A result as TENSORS, as TENSOR, or what `answers` makes of it. Raises BadAnswer naming the output."""
        if self._fields is not None and isinstance(result, Mapping):
            return Payload(Kind.TENSORS, _declared(result, self._fields), request.method)
        if isinstance(result, Mapping):
            named = {name: output(value) for name, value in result.items()}
            if all(array is not None and isinstance(name, str) for name, array in named.items()):
                return Payload(Kind.TENSORS, named, request.method)
        if isinstance(result, bool | int | float):
            result = np.array([result])
        answer = answers.payload(result, request)
        if self._one is not None and answer.kind is Kind.TENSOR:
            found = _cast(answer.value, self._one)
            # Texts stay texts: Seldon's protocol has no form for bytes in an array.
            answer.value = answer.value if self._one.datatype == "BYTES" and not _has_bytes(answer.value) else found
        return answer


def output(value: Any) -> Array | None:
    """An array-like value as an array that V2 can carry, an element as one of shape [1]; None for anything else."""
    if isinstance(value, str | bytes):
        return as_bytes(np.fromiter([value], dtype=object, count=1))
    found = np.array([value]) if isinstance(value, bool | int | float) else answers.tensor(value)
    if found is None:
        return None
    return np.atleast_1d(found) if found.dtype.kind not in "OSU" else as_bytes(np.atleast_1d(found))


def _has_bytes(array: Array) -> bool:
    return array.dtype.kind == "S" or any(isinstance(cell, bytes) for cell in array.ravel().tolist())


def _declared(result: Mapping[str, Any], fields: Mapping[str, TensorSpec]) -> dict[str, Array]:
    missing = [name for name, spec in fields.items() if not spec.optional and name not in result]
    if missing:
        raise BadAnswer(f"output {missing[0]!r} is missing; the model returned {', '.join(map(str, result)) or 'none'}")
    return {name: _output(name, value, fields.get(name)) for name, value in result.items()}


def _output(name: str, value: Any, spec: TensorSpec | None) -> Array:
    found = output(value)
    if found is None:
        raise BadAnswer(f"output {name!r} is a {type(value).__qualname__}, which is no tensor")
    return found if spec is None else _cast(found, spec)


def _cast(value: Array, spec: TensorSpec) -> Array:
    found = cast(value, spec.datatype)
    if found is None:
        said = datatype_of(value) or value.dtype.name
        raise BadAnswer(f"output {spec.name!r} has the datatype {said}, which does not fit {spec.datatype}")
    return found


def _fields(annotation: Any) -> dict[str, TensorSpec]:
    scope = vars(sys.modules[annotation.__module__])
    hints = {name: evaluated(hint, scope) for name, hint in annotation.__annotations__.items()}
    return {name: _field(name, hint, name in annotation.__required_keys__) for name, hint in hints.items()}


def _field(name: str, hint: Any, required: bool) -> TensorSpec:  # noqa: FBT001 - one call, above
    origin = get_origin(hint)
    if origin in {NotRequired, Required}:
        required = origin is Required
        hint = get_args(hint)[0]
    found = meaning(hint)
    spec = found.spec if found is not None else TensorSpec()
    return msgspec.structs.replace(spec, name=name, optional=not required)


def _one(annotation: Any) -> TensorSpec | None:
    found = meaning(annotation)
    return None if found is None or found.frame else msgspec.structs.replace(found.spec, name="predict")

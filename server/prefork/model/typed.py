"""The named style: a `predict` whose annotated parameters are the model's inputs by name.

    def predict(self, sepal: np.ndarray, threshold: float = 0.5) -> dict[str, np.ndarray]: ...

A predict is in this style when every parameter but `meta` is annotated and the second is not Seldon's `names`. What the
annotations mean stands in `hints` and `returns`. Inputs come by name from V2's tensors and parameters and from JSON
objects, and from one array by its columns or as the only input that is required.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

import numpy as np

from prefork.errors import BadRequest, ModelLoadError
from prefork.model import hints
from prefork.model.answers import from_list
from prefork.model.casting import cast, fitted
from prefork.model.features import text
from prefork.model.hints import Array, Meaning
from prefork.model.hooks import Hook
from prefork.model.lent import NOTHING, Lent
from prefork.model.returns import Returns
from prefork.payload import Kind, Payload, TensorSpec, datatype_of

SELDON_NAMES = frozenset({"names", "feature_names", "features_names"})
"""What Seldon's classes call the second argument of `predict`."""

_WHOLE = ""
"""Stands for the name of a matrix that becomes a data frame and whose columns have no names."""


def is_named(hook: Hook) -> bool:
    """Whether a `predict` is in the named style."""
    try:
        parameters = [p for p in inspect.signature(hook).parameters.values() if p.name != "meta"]
    except (TypeError, ValueError):
        return False
    if len(parameters) > 1 and parameters[1].name in SELDON_NAMES:
        return False
    by_name = all(p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY} for p in parameters)
    return bool(parameters) and by_name and all(p.annotation is not p.empty for p in parameters)


class Named:
    """A `predict` in the named style.

    inputs: what it takes; None where a data frame takes whatever comes. outputs: what it returns, where that is known.
    streams: whether its annotation promises an iterator. lends: what it is lent, in parameters that are no inputs.
    Raises ModelLoadError for an annotation that is no input.
    """

    def __init__(self, hook: Hook, lends: Lent = NOTHING) -> None:
        self._hook = hook
        self._lent = lends if lends != NOTHING else None
        self._fields: dict[str, Meaning] = {}
        self._frame: tuple[str, Any] | None = None
        resolved = hints.resolved(hook)
        parameters = inspect.signature(hook).parameters
        self._meta = "meta" in parameters
        for parameter in parameters.values():
            if parameter.name != "meta" and parameter.name not in lends.names:
                self._add(parameter, resolved.get(parameter.name, parameter.annotation))
        self._specs = {name: _spec(name, field, parameters[name]) for name, field in self._fields.items()}
        self._nullable = [
            name for name, spec in self._specs.items() if spec.optional and not _has_default(parameters[name])
        ]
        self._required = [name for name, spec in self._specs.items() if not spec.optional]
        self.inputs: tuple[TensorSpec, ...] | None = tuple(self._specs.values()) if self._frame is None else None
        self._returns = Returns(resolved.get("return"), hook)
        self.outputs, self.streams = self._returns.outputs, self._returns.streams

    def call(self, request: Payload) -> Any:
        """Call it with what a request has for it. Raises BadRequest naming the input that is missing or does not fit."""
        arguments = self.arguments(request)
        if self._lent is not None:
            arguments.update(self._lent.arguments(request))
        return self._hook(**arguments)

    def answer(self, result: Any, request: Payload) -> Payload:
        """What it returned, as a payload. Raises BadAnswer naming the output."""
        return self._returns.answer(result, request)

    def arguments(self, request: Payload) -> dict[str, Any]:
        """The keyword arguments that a request has."""
        values = self._values(request)
        for name, value in (request.parameters or {}).items():
            if name in self._fields:
                values.setdefault(name, value)
        taken = {name: self._read(name, values[name]) for name in self._fields if values.get(name) is not None}
        self._check(taken, values)
        for name in self._nullable:
            taken.setdefault(name, None)
        if self._frame is not None:
            taken[self._frame[0]] = self._framed(values)
        if self._meta:
            taken["meta"] = request.meta_for_model()
        return taken

    def _add(self, parameter: inspect.Parameter, annotation: Any) -> None:
        found = hints.meaning(annotation)
        if found is None:
            raise ModelLoadError(
                f"predict({parameter.name}: {inspect.formatannotation(annotation)}): that is no type of an input; use "
                "np.ndarray, Annotated[np.ndarray, TensorSpec(...)], float, int, bool, str, bytes, a list of these or "
                "pandas.DataFrame, or leave the annotations out for Seldon's X, names"
            )
        if found.frame is None:
            self._fields[parameter.name] = found
        elif self._frame is None:
            self._frame = (parameter.name, found.frame)
        else:
            raise ModelLoadError(
                f"predict takes two data frames, {self._frame[0]!r} and {parameter.name!r}; one is all"
            )

    def _values(self, request: Payload) -> dict[str, Any]:
        kind, value = request.kind, request.value
        if kind is Kind.TENSORS:
            return dict(value)
        if kind is Kind.TENSOR:
            return self._from_matrix(value, request.names or [])
        if kind is Kind.JSON and isinstance(value, dict):
            return dict(value)
        if kind is Kind.JSON or (kind in {Kind.TEXT, Kind.BYTES} and self._frame is None):
            return {self._only(): value}
        if kind in {Kind.TEXT, Kind.BYTES}:
            raise self._missing(())
        raise BadRequest(f"Invalid request data type: {repr(value)[:1000]}")

    def _from_matrix(self, x: Any, names: list[Any]) -> dict[str, Any]:
        """One array as inputs: by its columns' names, whole, or by its columns' order."""
        names = names if all(isinstance(name, str) for name in names) else []
        width = x.shape[1] if isinstance(x, np.ndarray) and x.ndim > 1 else 0
        by_name = width == len(names) and set(self._required) <= set(names)
        if by_name and names and (self._frame is not None or set(names) <= set(self._fields)):
            return {name: x[:, at] for at, name in enumerate(names)}
        if self._frame is not None or len(self._required) == 1 or len(self._fields) == 1:
            return {self._only(): x}
        if not names and width == len(self._fields):
            return {name: x[:, at] for at, name in enumerate(self._fields)}
        raise self._missing(names)

    def _only(self) -> str:
        """The one input that a value without a name can mean."""
        if self._frame is not None and not self._required:
            return _WHOLE
        candidates = self._required or list(self._fields)
        if len(candidates) != 1 or self._frame is not None:
            raise self._missing(())
        return candidates[0]

    def _check(self, taken: Collection[str], values: dict[str, Any]) -> None:
        if any(name not in taken for name in self._required):
            raise self._missing(taken)
        unexpected = [name for name in values if name not in self._fields]
        if unexpected and self._frame is None:
            raise BadRequest(f"unexpected input {unexpected[0]!r}; the model takes {self._takes()}")

    def _missing(self, given: Collection[Any]) -> BadRequest:
        missing = [name for name in self._required if name not in given] or list(self._fields)
        said = ", ".join(map(repr, missing)) or "of columns"
        return BadRequest(f"missing input {said}; the model takes {self._takes()}")

    def _takes(self) -> str:
        return ", ".join([*self._fields, *(["the columns of a data frame"] if self._frame is not None else [])])

    def _read(self, name: str, value: Any) -> Any:
        spec = self._specs[name]
        array = value if isinstance(value, np.ndarray) else _as_array(name, value)
        found = cast(array, spec.datatype)
        if found is None:
            said = datatype_of(array) or array.dtype.name
            raise BadRequest(f"input {name!r} has the datatype {said}, which does not fit {spec.datatype}")
        try:
            return self._fields[name].read(fitted(found, spec))
        except BadRequest as error:
            raise BadRequest(f"input {name!r} {error.message}") from None

    def _framed(self, values: dict[str, Any]) -> Any:
        assert self._frame is not None
        make = self._frame[1]
        if make is True:
            import pandas as pd

            make = pd.DataFrame
        columns = {name: _column(name, value) for name, value in values.items() if name not in self._fields}
        try:
            frame = make(columns.get(_WHOLE, columns))
        except (TypeError, ValueError) as error:
            raise BadRequest(f"the inputs make no data frame: {error}") from None
        return frame.infer_objects() if hasattr(frame, "infer_objects") else frame


def _has_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty


def _spec(name: str, field: Meaning, parameter: inspect.Parameter) -> TensorSpec:
    optional = field.spec.optional or _has_default(parameter)
    return TensorSpec(field.spec.datatype, field.spec.shape, name, optional)


def _as_array(name: str, value: Any) -> Array:
    """A JSON value as an array; one element has the shape [1]."""
    if isinstance(value, list):
        found = from_list(value)
    elif isinstance(value, bool | int | float):
        found = np.array([value])
    else:
        found = np.fromiter([value], dtype=object, count=1)
    if found.dtype == object and any(isinstance(element, list) for element in found.tolist()) and found.ndim == 1:
        raise BadRequest(f"input {name!r} is a list of unequal elements, which is no array")
    return found


def _column(name: str, value: Any) -> Any:
    if name == _WHOLE and not isinstance(value, np.ndarray):
        return value
    array = text(value if isinstance(value, np.ndarray) else _as_array(name, value))
    return array if name == _WHOLE else array.ravel()

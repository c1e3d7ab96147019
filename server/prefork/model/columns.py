"""The inputs of a saved model that takes a table: one matrix, or its columns one by one, by their names or in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prefork.errors import BadRequest
from prefork.model.casting import kept, parsed
from prefork.model.features import text
from prefork.model.tensor_inputs import as_array
from prefork.payload import Kind, Payload, TensorSpec, datatype_of

Array = np.ndarray[Any, Any]
WHOLE = "input"
"""What metadata calls the matrix of a model whose columns have no names."""


class Columns:
    """A table of `width` columns (-1 for any number).

    names: the columns', if the model knows them; datatypes: theirs, "" where any will do. frame: whether the model takes a
    pandas.DataFrame, so that each column keeps its own type; else it takes one matrix of `datatype`. optional: names of columns
    that may be left out of a frame.
    """

    is_batched = True

    def __init__(
        self,
        width: int = -1,
        names: tuple[str, ...] = (),
        datatype: str = "FP64",
        datatypes: Mapping[str, str] | None = None,
        *,
        frame: bool = False,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self.width = len(names) or width
        self.names = names
        self._optional = optional
        self._datatype = datatype
        self._datatypes = dict(datatypes or {})
        self._frame = frame

    def described(self) -> tuple[TensorSpec, ...]:
        """A tensor a column where they have names, else the matrix."""
        if self.names:
            return tuple(TensorSpec(self._of(name), (-1,), name, name in self._optional) for name in self.names)
        return (TensorSpec(self._datatype, (-1, self.width), WHOLE),)

    def gather(self, request: Payload) -> Any:
        """The matrix, or the data frame. Raises BadRequest naming the column."""
        found = self._found(request)
        if isinstance(found, dict):
            found = self._ordered(found)
            return self._framed(found) if self._frame else self._stacked(found)
        matrix = self._checked(found)
        if self._frame:
            return self._framed(self._split(matrix, self.names or tuple(map(str, range(matrix.shape[1])))))
        return self._cast("the input", matrix, self._datatype)

    def _of(self, name: str) -> str:
        return self._datatypes.get(name, self._datatype)

    def _found(self, request: Payload) -> Array | dict[str, Array]:
        """What came, as one matrix or as columns."""
        kind, value = request.kind, request.value
        if kind is Kind.TENSOR:
            names = [str(name) for name in request.names or []]
            if value.ndim == 2 and len(names) == value.shape[1] and not set(names).isdisjoint(self.names):
                return self._split(value, names)  # names that it does not know at all are made up
            return self._as_rows(value)
        if kind in {Kind.TENSORS, Kind.JSON} and isinstance(value, dict):
            if len(value) == 1 and not value.keys() <= set(self.names):
                return self._as_rows(as_array(next(iter(value.values()))))
            return {name: as_array(each) for name, each in value.items()}
        if kind is Kind.JSON:
            return self._as_rows(as_array(value))
        raise BadRequest("the model takes rows of columns: a matrix, or its columns by name")

    def _split(self, matrix: Array, names: Sequence[str]) -> dict[str, Array]:
        columns = {name: matrix[:, at] for at, name in enumerate(names)}
        return {name: each if self._of(name) == "BYTES" else parsed(each) for name, each in columns.items()}

    def _as_rows(self, array: Array) -> Array:
        """A matrix; a list of as many values as there are columns is one row."""
        if array.ndim == 1 and self.width in {1, len(array)}:
            return array.reshape(-1, self.width)
        return array

    def _checked(self, matrix: Array) -> Array:
        if matrix.ndim != 2 or self.width not in {-1, matrix.shape[1]}:
            wide = "any number of" if self.width < 0 else str(self.width)
            raise BadRequest(f"the input has the shape {list(matrix.shape)}; rows of {wide} columns are needed")
        return matrix

    def _ordered(self, columns: dict[str, Array]) -> dict[str, Array]:
        """The columns as the model knows them."""
        flat = {name: _column(name, array) for name, array in columns.items()}
        if not self.names:
            self._check_count(len(flat))
            return flat
        missing = next((name for name in self.names if name not in flat and name not in self._optional), None)
        if missing is not None:
            raise BadRequest(f"missing column {missing!r}; the model takes {', '.join(self.names)}")
        unexpected = next((name for name in flat if name not in self.names), None)
        if unexpected is not None:
            raise BadRequest(f"unexpected column {unexpected!r}; the model takes {', '.join(self.names)}")
        self._check_lengths(flat)
        return {name: flat[name] for name in self.names if name in flat}

    def _check_count(self, count: int) -> None:
        if self.width not in {-1, count}:
            raise BadRequest(f"there are {count} columns; {self.width} are needed")

    @staticmethod
    def _check_lengths(columns: dict[str, Array]) -> None:
        lengths = {len(array) for array in columns.values()}
        if len(lengths) > 1:
            said = ", ".join(f"{name} {len(array)}" for name, array in columns.items())
            raise BadRequest(f"the columns have different numbers of rows: {said}")

    def _stacked(self, columns: dict[str, Array]) -> Array:
        self._check_lengths(columns)
        if not columns:
            raise BadRequest("there is no column")
        return np.column_stack([self._cast(f"column {name!r}", each, self._of(name)) for name, each in columns.items()])

    def _framed(self, columns: dict[str, Array]) -> Any:
        import pandas as pd

        cast = {
            name: self._cast(f"column {name!r}", each, self._datatypes.get(name, "")) for name, each in columns.items()
        }
        return pd.DataFrame(cast).infer_objects()

    @staticmethod
    def _cast(what: str, array: Array, datatype: str) -> Array:
        found = text(array)
        if datatype == "BYTES" and found.dtype.kind in "biuf":
            raise BadRequest(f"{what} has the datatype {datatype_of(found)}; text (BYTES) is needed")
        if not datatype or datatype == "BYTES":
            return found
        if found.dtype.kind in "OSU":
            found = _numbers(what, found, datatype)
        try:
            return kept(found, datatype)
        except BadRequest as error:
            raise BadRequest(f"{what} {error.message}") from None


def _column(name: str, array: Array) -> Array:
    if array.ndim == 1 or array.size == len(array):
        return array.reshape(-1)
    raise BadRequest(f"column {name!r} has the shape {list(array.shape)}; one value a row is needed")


def _numbers(what: str, array: Array, datatype: str) -> Array:
    """Numbers among nulls, of which an array of objects was made. Raises BadRequest for anything else."""
    cells = array.ravel().tolist()
    odd = next((cell for cell in cells if cell is not None and not isinstance(cell, int | float)), None)
    if odd is not None:
        raise BadRequest(f"{what} has the value {str(odd)[:60]!r}, which is no number ({datatype} is needed)")
    found = np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
    changed = next(
        (cell for cell, it in zip(cells, found.tolist(), strict=True) if isinstance(cell, int) and it != cell), None
    )
    if changed is not None:
        raise BadRequest(f"{what} has the value {changed}, which is another number as {datatype}")
    return found.reshape(array.shape)

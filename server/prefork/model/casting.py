"""Arrays in another datatype, where that loses nothing that the sender meant.

JSON's numbers have no datatype: an integer is a float's value too, a float with no fraction an integer's, and a decimal
fraction is rounded to whichever float is asked for. Text never becomes a number, a number never a boolean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prefork.errors import BadRequest
from prefork.model.answers import from_list
from prefork.payload import DATATYPES, TensorSpec, datatype_of

Array = np.ndarray[Any, Any]


def cast(array: Array, datatype: str) -> Array | None:
    """The array in a V2 datatype, BYTES as an object array of `bytes`; None where something would be lost.

    An empty datatype, and one that numpy does not have (BF16), leave the array as it is.
    """
    target = DATATYPES.get(datatype)
    if target is None:
        return array
    if datatype == "BYTES":
        return as_bytes(array)
    if array.dtype == target:
        return array
    if array.size == 0 or (array.dtype.kind in "biuf" and np.can_cast(array.dtype, target)):
        return array.astype(target)
    if array.dtype.kind not in "iuf" or target.kind == "b":
        return None
    with np.errstate(all="ignore"):
        found = array.astype(target)
    return found if _is_kept(array, found) else None


def kept(array: Array, datatype: str) -> Array:
    """As `cast`, and a whole number stays the number that it was: beyond 2**24 an FP32 is another one.

    Raises BadRequest, which has yet to be told whose array it is.
    """
    found = cast(array, datatype)
    if found is not None and array.dtype.kind in "iu" and found.dtype.kind == "f":
        with np.errstate(all="ignore"):
            found = found if np.array_equal(found.astype(array.dtype), array) else None
    if found is None:
        said = datatype_of(array) or array.dtype.name
        raise BadRequest(f"has the datatype {said} and values that do not fit {datatype}")
    return found


def parsed(column: Array) -> Array:
    """The numbers that a column has among objects, or that its texts spell, all of them; else the column as it is.

    A matrix of numbers and texts is one of objects by the time it gets here, or one of texts, as numpy makes it (and so Seldon).
    """
    if column.dtype.kind not in "OSU":
        return column
    cells = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in column.ravel().tolist()]
    if cells and all(isinstance(each, int | float) for each in cells):
        return from_list(cells).reshape(column.shape)
    if not cells or not all(isinstance(each, str) for each in cells):
        return column
    for read in (int, float):
        try:
            return np.array([read(each) for each in cells]).reshape(column.shape)
        except (ValueError, OverflowError):
            continue
    return column


def fitted(array: Array, spec: TensorSpec) -> Array:
    """The array in the shape that is asked for: [n] and [n,1] stand for each other, and one element for any shape of one.

    Raises BadRequest, which has yet to be told whose array it is.
    """
    if spec.shape is None or spec.accepts(array.shape):
        return array
    if array.size == 1 and all(size in {1, -1} for size in spec.shape):
        return array.reshape((1,) * len(spec.shape))
    if array.ndim == 1 and spec.accepts((*array.shape, 1)):
        return array[:, None]
    if array.ndim == 2 and array.shape[1] == 1 and spec.accepts(array.shape[:1]):
        return array[:, 0]
    raise BadRequest(f"has the shape {list(array.shape)}, which does not fit {list(spec.shape)}")


def carried(array: Array) -> Array:
    """An array as V2 carries it: texts as `bytes`; what holds something else is left as it is."""
    found = as_bytes(array.astype(object)) if array.dtype.kind in "OSU" else None
    return array if found is None else found


def as_bytes(array: Array) -> Array | None:
    """Text as an object array of `bytes`, in UTF-8; None where an element is neither `str` nor `bytes`."""
    elements = array.ravel().tolist()
    if not all(isinstance(element, str | bytes) for element in elements):
        return None
    if array.dtype == object and all(isinstance(element, bytes) for element in elements):
        return array
    found = [element.encode() if isinstance(element, str) else element for element in elements]
    return np.fromiter(found, dtype=object, count=len(found)).reshape(array.shape)


def _is_kept(array: Array, found: Array) -> bool:
    if found.dtype.kind == "f":
        return bool(np.array_equal(np.isinf(found), np.isinf(array)))
    return bool(np.array_equal(found, array))

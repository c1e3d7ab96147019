"""Arrays in another datatype, where that loses nothing that the sender meant.

JSON's numbers have no datatype: an integer is a float's value too, a float with no fraction an integer's, and a decimal
fraction is rounded to whichever float is asked for. Text never becomes a number, a number never a boolean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prefork.payload import DATATYPES

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

"""V2's classification extension: the best classes of an output instead of its numbers.

Each class is the text `value:index`, or `value:index:label` where it has one, best first, the value as C's `%f` (integers as they are): `5.000000:1`. The first
axis of an output of two or more axes is the batch, the others are its classes; an output of one axis is one list of classes.
Source: Triton's classification extension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from prefork.errors import BadRequest
from prefork.protocols.tensors import Array, object_array

LIMIT = 1_000_000
"""The most elements of an output that can be classified."""


def classify(name: str, array: Array, datatype: str, count: int, labels: Sequence[str] = ()) -> Array:
    """The `count` best classes (all, if there are fewer): an object array of `bytes`, shape [batch, count] or [count].

    Raises BadRequest for a datatype that cannot be ordered this way and for more than LIMIT elements.
    """
    if datatype in {"BYTES", "BOOL", "FP16", "BF16"}:
        raise BadRequest(f"class result not available for output '{name}' due to unsupported type '{datatype}'")
    if array.size > LIMIT:
        raise BadRequest(f"class result not available for output '{name}': it has {array.size} elements, over {LIMIT}")
    batch = array.shape[:1] if array.ndim > 1 else ()
    classes = math.prod(array.shape[len(batch) :])
    best = [text for row in array.reshape(batch[0] if batch else 1, classes) for text in _best(row, count, labels)]
    return object_array(best).reshape(*batch, min(count, classes))


def _best(row: Array, count: int, labels: Sequence[str]) -> list[bytes]:
    keys = np.where(np.isnan(row), -np.inf, row) if row.dtype.kind == "f" else row
    # Ascending and stable over the reversed row, read backwards: descending, and of equals the first one first.
    order = len(row) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]
    pattern = b"%f:%d" if row.dtype.kind == "f" else b"%d:%d"
    best = order[:count].tolist()
    return [pattern % (row[index].item(), index) + _label(labels, index) for index in best]


def _label(labels: Sequence[str], index: int) -> bytes:
    return b":" + labels[index].encode() if index < len(labels) else b""

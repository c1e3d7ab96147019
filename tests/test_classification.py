"""V2's classification extension: the best classes instead of the numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prefork.errors import BadRequest
from prefork.protocols.classification import LIMIT, classify


@pytest.mark.parametrize(
    ("array", "count", "classes"),
    [
        (np.array([[2, 5, 4, 3]], "f4"), 2, [[b"5.000000:1", b"4.000000:2"]]),
        (np.array([[1, 2], [4, 3]], "f8"), 1, [[b"2.000000:1"], [b"4.000000:0"]]),
        (np.array([0.1, 0.9], "f4"), 9, [b"0.900000:1", b"0.100000:0"]),
        (np.array([3, 250, 7], "u1"), 2, [b"250:1", b"7:2"]),
        (np.array([-(2**63), 2**63 - 1]), 2, [b"9223372036854775807:1", b"-9223372036854775808:0"]),
        (np.array([1, 2, 2, 2]), 3, [b"2:1", b"2:2", b"2:3"]),
        (np.array([math.nan, -1, math.inf]), 3, [b"inf:2", b"-1.000000:1", b"nan:0"]),
        (np.arange(8.0).reshape(2, 2, 2), 1, [[b"3.000000:3"], [b"7.000000:3"]]),
        (np.array(5.0), 1, [b"5.000000:0"]),
    ],
)
def test_the_best_come_first(array, count, classes):
    """Each row's best values with their index, of equals the first one first, NaN last."""
    datatype = {"f4": "FP32", "f8": "FP64", "u1": "UINT8", "i8": "INT64"}[array.dtype.str[1:]]
    assert classify("B", array, datatype, count).tolist() == classes


@pytest.mark.parametrize(("shape", "found"), [((0,), (0,)), ((0, 3), (0, 2)), ((3, 0), (3, 0)), ((2, 3), (2, 2))])
def test_shapes(shape, found):
    """The batch stays, the classes are as many as asked for or as there are."""
    array = classify("B", np.zeros(shape), "FP64", 2)
    assert (array.shape, array.dtype) == (found, np.dtype(object))


@pytest.mark.parametrize("datatype", ["BYTES", "BOOL", "FP16", "BF16"])
def test_unordered_datatypes_are_refused(datatype):
    """What has no classes is a 400 that names the output and its datatype."""
    with pytest.raises(BadRequest, match=f"output 'B' due to unsupported type '{datatype}'"):
        classify("B", np.zeros(2), datatype, 1)


def test_huge_outputs_are_refused():
    """More elements than the limit are not sorted."""
    with pytest.raises(BadRequest, match=r"output 'B'.* over 1000000"):
        classify("B", np.zeros(LIMIT + 1, "i1"), "INT8", 1)


@given(hnp.arrays(np.int32, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)), st.integers(1, 30))
def test_classes_are_the_sorted_values(array, count):
    """The texts read back to the largest values of each row, each at its own index."""
    found = classify("B", array, "INT32", count)
    rows = array.reshape(array.shape[0], -1) if array.ndim > 1 else array.reshape(1, -1)
    for row, texts in zip(rows, found.reshape(len(rows), -1), strict=True):
        pairs = [tuple(map(int, text.split(b":"))) for text in texts]
        assert [value for value, _ in pairs] == sorted(row.tolist(), reverse=True)[:count]
        assert all(row[index] == value for value, index in pairs)
        assert len({index for _, index in pairs}) == len(pairs)

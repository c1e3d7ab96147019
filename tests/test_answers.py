"""What a user's hook returned, as a payload."""

from __future__ import annotations

import collections
import datetime as dt
import math
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.errors import BadAnswer, BadRequest
from prefork.model import answers
from prefork.payload import Kind, Payload

REQUEST = Payload(Kind.JSON, {}, method="transform_input")


class ArrayLike:
    def __array__(self, dtype=None, copy=None):
        return np.array([[7]])


class Sub(np.ndarray):
    pass


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    ("result", "dtype", "value"),
    [
        (np.array([[1]], dtype="u1"), "u1", [[1]]),
        (np.float32(0.5), "f4", 0.5),
        (np.bool_(True), "?", True),
        ([[1, 2]], "i8", [[1, 2]]),
        ((1, 2), "i8", [1, 2]),
        (Pair(1, 2), "i8", [1, 2]),
        ([1, 2.5], "f8", [1.0, 2.5]),
        ([], "f8", []),
        ([[]], "f8", [[]]),
        ([np.float32(1.0)], "f4", [1.0]),
        ([np.array([1, 2]), np.array([3, 4])], "i8", [[1, 2], [3, 4]]),
        (["a", "b\0"], "O", ["a", "b\0"]),
        ([b"a\0"], "O", [b"a\0"]),
        ([[1, "a"]], "O", [[1, "a"]]),
        ([True, 3], "O", [True, 3]),
        ([True, 0.5], "O", [True, 0.5]),
        ([1, None], "O", [1, None]),
        ([{"a": 1}], "O", [{"a": 1}]),
        ([[1], [2, 3]], "O", [[1], [2, 3]]),
        ([2**70], "O", [2**70]),
        ([2**63, -1], "O", [2**63, -1]),
        ([2**53 + 1, 0.5], "O", [2**53 + 1, 0.5]),
        (pd.Series([1, 2]), "i8", [1, 2]),
        (pd.Series(["a", None]), "O", ["a", None]),
        (pd.Series([True, None], dtype="boolean"), "O", [True, None]),
        (ArrayLike(), "i8", [[7]]),
        (np.ma.masked_array([1, 2], mask=[False, True]), "O", [1, None]),
        (np.array([[1, 2]]).view(Sub), "i8", [[1, 2]]),
    ],
)
def test_array_like_results_are_a_tensor(result: object, dtype: str, value: object):
    """Arrays, scalars of numpy, lists, tuples, series and array-likes are a plain array with the same elements."""
    answer = answers.payload(result, REQUEST)
    assert (answer.kind, answer.method, answer.names) == (Kind.TENSOR, "transform_input", None)
    assert type(answer.value) is np.ndarray
    assert answer.value.dtype == np.dtype(dtype)
    assert answer.value.tolist() == value


@pytest.mark.parametrize(
    ("result", "kind", "value"),
    [
        ("s", Kind.TEXT, "s"),
        (np.str_("s"), Kind.TEXT, "s"),
        (b"b", Kind.BYTES, b"b"),
        (bytearray(b"b"), Kind.BYTES, b"b"),
        (memoryview(b"b"), Kind.BYTES, b"b"),
        ({"a": np.float32(1)}, Kind.JSON, {"a": 1.0}),
        (collections.ChainMap({"a": 1}), Kind.JSON, {"a": 1}),
    ],
)
def test_other_results_keep_their_kind(result: object, kind: Kind, value: object):
    """Text, bytes and mappings are what they are, as plain str, bytes and dict."""
    answer = answers.payload(result, REQUEST)
    assert (answer.kind, answer.value, type(answer.value)) == (kind, value, type(value))


def test_a_data_frame_has_the_names_of_its_columns():
    """A data frame is its cells with its columns' names; what is missing among objects is None."""
    answer = answers.payload(pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}), REQUEST)
    assert (answer.value.tolist(), answer.names) == ([[1.0, 0.5], [2.0, 1.5]], ["a", "b"])
    answer = answers.payload(pd.DataFrame({"a": ["x", None], 7: [1, 2]}), REQUEST)
    assert (answer.value.tolist(), answer.names) == ([["x", 1], [None, 2]], ["a", 7])
    assert answers.payload(pd.DataFrame([[1, 2]]), REQUEST).names is None


@pytest.mark.parametrize("result", [5, 1.5, True, None, {1}, object(), dt.date(2020, 1, 1), range(3)])
def test_what_no_answer_carries_names_its_type(result: object):
    """Everything else is a 500 that names the type."""
    with pytest.raises(BadAnswer, match=rf"must be list or np array\): {type(result).__name__}$"):
        answers.payload(result, REQUEST)


def test_the_clients_own_value_is_the_clients_mistake():
    """A number that came in as jsonData and went out untouched is a 400: no answer can carry what was sent."""
    with pytest.raises(BadRequest):
        answers.payload(3, Payload(Kind.JSON, 3))


LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=3)


@given(st.lists(LEAVES | st.lists(LEAVES, max_size=3), max_size=4))
def test_no_element_of_a_list_is_changed(values: list[object]):
    """A list's elements are the same in the array; only an integer among fractions may be written as a float."""
    found = answers.from_list(values).tolist()
    assert found == values
    for one, other in zip(flat(found), flat(values), strict=True):
        assert type(one) is type(other) or (type(one), type(other)) == (float, int)
        assert not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, float(other))


def flat(values: object) -> list[object]:
    return [leaf for value in values for leaf in flat(value)] if isinstance(values, list) else [values]

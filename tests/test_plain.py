"""Python, numpy and pandas values as JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json as python_json
import math
from collections import OrderedDict, namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from prefork.errors import BadAnswer
from prefork.protocols import json
from vectors import bits, same_json

Point = namedtuple("Point", "x y")  # noqa: PYI024


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Box:
    side: Any


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.float16(0.5), "0.5"),
        (np.float64(1 / 3), "0.3333333333333333"),
        (np.longdouble(1.5), "1.5"),
        (np.int8(-1), "-1"),
        (np.uint64(2**64 - 1), "18446744073709551615"),
        (np.bool_(True), "true"),
        (np.str_("x"), '"x"'),
        (np.array([0.1, 1 / 3], dtype="f4"), "[0.1,0.33333334]"),
        (np.array(3.0), "3.0"),
        (np.array("x"), '"x"'),
        (np.array(None), "null"),
        (np.array(0.1, dtype=">f4"), "0.1"),
        (np.array([[1, 2], [3, 4]], order="F"), "[[1,2],[3,4]]"),
        (np.arange(6)[::-2], "[5,3,1]"),
        (np.array([1.5, 2.5], dtype=">f4"), "[1.5,2.5]"),
        (np.array([1], dtype=">i8"), "[1]"),
        (np.array([1.5], dtype="f2"), "[1.5]"),
        (np.array([1.5], dtype=np.longdouble), "[1.5]"),
        (np.array(["a", "é"]), '["a","é"]'),
        (np.array([[1, "b", None, 2.5]], dtype=object), '[[1,"b",null,2.5]]'),
        (np.array([np.float32(0.1), np.arange(2)], dtype=object), "[0.1,[0,1]]"),
        (np.array([1.5, 0.1], dtype=ml_dtypes.bfloat16), "[1.5,0.100097656]"),
        ({1: ml_dtypes.bfloat16(1.5)}, '{"1":1.5}'),
        (ml_dtypes.bfloat16(1.5), "1.5"),
        (np.array([True, False]), "[true,false]"),
        (np.zeros((0, 3)), "[]"),
        (np.zeros((2, 0)), "[[],[]]"),
        (np.array(["2020-01-02", "NaT"], dtype="M8[D]"), '["2020-01-02",null]'),
        (np.array(["2020-01-02T03:04:05"], dtype="M8[s]"), '["2020-01-02T03:04:05"]'),
        (np.datetime64("2020-01-02T03:04:05"), '"2020-01-02T03:04:05"'),
        (np.datetime64("NaT", "s"), "null"),
        ((1, (2, 3)), "[1,[2,3]]"),
        (Point(1, np.int64(2)), "[1,2]"),
        ({2: "a", 2.5: "b", True: "c", None: "d"}, '{"2":"a","2.5":"b","true":"c","null":"d"}'),
        ({np.int64(7): {np.str_("k"): np.float32(0.1)}}, '{"7":{"k":0.1}}'),
        ({Colour.RED: Colour.RED, dt.date(2020, 1, 2): 1}, '{"red":"red","2020-01-02":1}'),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (Box(np.array([1.5])), '{"side":[1.5]}'),
        (Box({1: 2**70}), '{"side":{"1":1180591620717411303424}}'),
        (2**64, "18446744073709551616"),
        ([-(2**63) - 1, np.array([2**70], dtype=object)], "[-9223372036854775809,[1180591620717411303424]]"),
        ([math.nan, math.inf, np.float32("nan"), np.array([-math.inf])], "[null,null,null,[null]]"),
        (dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC), '"2020-01-02T03:04:05+00:00"'),
        (pd.DataFrame({"a": [1, 2], "b": [3, 4]}), "[[1,3],[2,4]]"),
        (pd.DataFrame({"a": [1, 2], "b": ["x", None]}), '[[1,"x"],[2,null]]'),
        (pd.Series([0.5, 1.5]), "[0.5,1.5]"),
        ({"s": pd.Series(["x", "y"]), "i": pd.Index([1, 2])}, '{"s":["x","y"],"i":[1,2]}'),
        ([pd.Timestamp("2020-01-02"), pd.NaT, pd.NA], '["2020-01-02T00:00:00",null,null]'),
        ({1: pd.Series([2**70], dtype=object)}, '{"1":[1180591620717411303424]}'),
        ({2: np.datetime64("NaT", "s"), 3: np.array(["NaT"], dtype="M8[ns]")}, '{"2":null,"3":[null]}'),
    ],
)
def test_values_are_written(value, text):
    """Numpy, pandas and Python values are written as the JSON that means the same, wherever they stand."""
    assert same_json(json.encode(value), text)
    assert same_json(json.encode({"a": [value]}), f'{{"a":[{text}]}}')


def test_epoch_is_written():
    """The first second of 1970 is a date as any other."""
    value = np.array([0, 1], dtype="M8[s]")
    assert json.encode({"t": value}) == b'{"t":["1970-01-01T00:00:00","1970-01-01T00:00:01"]}'


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({1, 2}, "set"),
        (1 + 2j, "complex"),
        (b"x", "bytes"),
        (object(), "object"),
        (np.array([1 + 2j]), "array of complex128"),
        (np.array([b"x"]), r"array of \|S1"),
        (np.array([b"x"], dtype=object), "bytes"),
        (np.complex64(1), "numpy.complex64"),
        (np.timedelta64(1, "s"), "numpy.timedelta64"),
        (np.zeros(1, dtype=[("a", "i4")]), "array of"),
        (dt.timedelta(1), "datetime.timedelta"),
        ({(1, 2): 3}, "tuple"),
        ({1: {2}}, "set"),
        ({1: np.array([1j])}, "array of complex128"),
        ({1: np.bytes_(b"x")}, "numpy.bytes_"),
        ({1: [np.complex64(1)]}, "numpy.complex64"),
        ("\ud800", "surrogates"),
    ],
)
def test_what_json_has_no_form_for_is_named(value, name):
    """A value that JSON has no form for is a 500 that names its type."""
    for each in (value, {"a": [value]}):
        with pytest.raises(BadAnswer, match=name) as caught:
            json.encode(each)
        assert caught.value.status == 500


def test_values_that_hold_themselves_are_refused():
    """A list in itself is an error, not a crash."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(BadAnswer, match="deep"):
        json.encode(value)


def test_objects_that_refuse_to_become_arrays_are_named():
    """An object whose `__array__` raises is named, with its own message."""

    class Tensor:
        def __array__(self, dtype=None, copy=None):
            raise TypeError("it is on the GPU")

    with pytest.raises(BadAnswer, match=r"Tensor.*it is on the GPU"):
        json.encode({"a": Tensor()})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([math.nan, math.inf, -math.inf, 1.5, None], "[NaN,Infinity,-Infinity,1.5,null]"),
        (np.array([[0.1, np.nan], [np.inf, -np.inf]], dtype="f4"), "[[0.1,NaN],[Infinity,-Infinity]]"),
        (np.array([1 / 3, np.nan]), "[0.3333333333333333,NaN]"),
        (np.array([np.nan, 0.1], dtype=">f4"), "[NaN,0.1]"),
        (np.array(np.nan), "NaN"),
        (np.float32("inf"), "Infinity"),
        ([ml_dtypes.bfloat16("nan"), np.array([np.nan], dtype=ml_dtypes.bfloat16), np.str_("x")], '[NaN,[NaN],"x"]'),
        ([np.bool_(True), np.int8(1), None, dt.date(2020, 1, 2), np.nan], '[true,1,null,"2020-01-02",NaN]'),
        (np.array([1.5, np.nan, None], dtype=object), "[1.5,NaN,null]"),
        ({"b": np.nan, "a": (np.array([1]), "null")}, '{"b":NaN,"a":[[1],"null"]}'),
        (pd.DataFrame({"a": [1.0, np.nan]}), "[[1.0],[NaN]]"),
    ],
)
def test_literals_are_written_when_asked_for(value, text):
    """With nan="literal", NaN and the infinities are what Python's json reads; nulls stay nulls."""
    assert json.encode(value, nan="literal").decode() == text
    assert "NaN" not in json.encode(value).decode()


@settings(deadline=None)
@given(npst.arrays(np.float32, npst.array_shapes(max_dims=3, max_side=4)), st.sampled_from(["null", "literal"]))
def test_float32_is_the_shortest_text(array, nan):
    """Each float32 is printed as the shortest text that reads back to the same float32."""
    back = np.array(python_json.loads(json.encode(array, nan=nan)), dtype=object).ravel()
    for ours, number in zip(back.tolist(), array.ravel(), strict=True):
        if np.isfinite(number):
            assert np.float32(ours) == number
            assert len(repr(ours).replace(".0e", "e")) <= len(repr(float(str(number)))) + 1
        else:
            assert ours is None if nan == "null" else bits(np.float32(ours)) == bits(number) or np.isnan(number)

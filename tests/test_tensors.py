"""A tensor's elements between numpy, JSON values and binary data."""

from __future__ import annotations

import math
import struct
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prefork.errors import BadAnswer, BadRequest
from prefork.payload import DATATYPES
from prefork.protocols import tensors

INTEGERS = [name for name, dtype in DATATYPES.items() if dtype.kind in "iu"]
FIXED = [name for name in DATATYPES if name != "BYTES"]
BINARY = st.binary(max_size=9)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
BFLOAT16 = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)


@st.composite
def arrays(draw, names=tuple(DATATYPES), texts=BINARY):
    """A datatype's name and an array of it."""
    name = draw(st.sampled_from(names))
    shape = draw(SHAPES)
    if name != "BYTES":
        return name, draw(hnp.arrays(DATATYPES[name], shape))
    elements = draw(st.lists(texts, min_size=math.prod(shape), max_size=math.prod(shape)))
    return name, tensors.object_array(elements).reshape(shape)


def same(a, b):
    """Equal in dtype, shape and every bit that JSON carries."""
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    np.testing.assert_array_equal(a, b)


def nest(flat, shape):
    """A flat list in nested lists of that shape."""
    if not shape:
        return flat[0]
    step = len(flat) // max(1, shape[0])
    return [nest(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


# JSON


@given(arrays([name for name in DATATYPES if name != "FP16"], texts=st.text(max_size=5).map(str.encode)))
def test_json_round_trip(case):
    """Every datatype that JSON carries comes back with its dtype, shape and values."""
    name, array = case
    shown = tensors.to_json("Y", array, name)
    same(tensors.from_json("X", name, array.shape, np.asarray(shown, dtype=object).tolist()), array)


@given(arrays([*INTEGERS, "FP64", "FP32"]))
def test_flat_arrays_are_read_like_lists(case):
    """A flat array, as the JSON reader gives for long data, is the same tensor as the list of its values."""
    name, array = case
    flat = array.reshape(-1)
    wide = flat.astype("f8" if flat.dtype.kind == "f" else "i8" if flat.dtype.kind == "i" else "u8")
    same(tensors.from_json("X", name, array.shape, wide), array)
    same(tensors.from_json("X", name, array.shape, wide.tolist()), array)


@given(hnp.arrays(np.int64, hnp.array_shapes(max_dims=4, max_side=3)))
def test_nesting_means_nothing(array):
    """Nested, flat and half-nested data are the same tensor."""
    flat = array.reshape(-1).tolist()
    same(tensors.from_json("X", "INT64", array.shape, nest(flat, array.shape)), array)
    same(tensors.from_json("X", "INT64", array.shape, [flat[:1], [[flat[1:]]]]), array)
    same(tensors.from_json("X", "INT64", array.shape, [*flat[:1], [[[]]], flat[1:]]), array)


def test_ragged_data_is_flattened():
    """Rows of different lengths are accepted where their elements count up to the shape, as Triton does."""
    array = tensors.from_json("X", "FP32", [2, 4], [[1, 2, 3], [4, 5, 6, 7, 8]])
    same(array, np.arange(1, 9, dtype="f4").reshape(2, 4))


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("long", [False, True], ids=["list", "array"])
def test_integers_keep_to_their_range(name, long):
    """The smallest and largest integer are taken; one more, or one less, is refused by input and index."""
    info = np.iinfo(DATATYPES[name])
    same(tensors.from_json("X", name, [2], [info.min, info.max]), np.array([info.min, info.max], DATATYPES[name]))
    for beyond in (int(info.min) - 1, int(info.max) + 1):
        if long and not -(2**63) <= beyond < 2**64:
            continue
        data = np.array([0, beyond], "i8" if beyond < 2**63 else "u8") if long else [0, beyond]
        with pytest.raises(BadRequest, match=f"input 'X': element 1, {beyond}, is out of range for {name}"):
            tensors.from_json("X", name, [2], data)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("INT32", [1, 1.0], "element 1 is a float; INT32 takes integers"),
        ("INT32", [True], "element 0 is a boolean; INT32 takes integers"),
        ("INT32", ["1"], "element 0 is a string; INT32 takes integers"),
        ("UINT8", [None], "element 0 is null; UINT8 takes integers"),
        ("INT64", [[1], [{"a": 1}]], "element 1 is an object; INT64 takes integers"),
        ("BOOL", [True, 1], "element 1 is an integer; BOOL takes true and false"),
        ("BOOL", [None], "element 0 is null; BOOL takes true and false"),
        ("BYTES", ["a", 1], "element 1 is an integer; BYTES takes strings"),
        ("BYTES", [None], "element 0 is null; BYTES takes strings"),
        ("BYTES", ["\ud800"], "half of a surrogate pair"),
        ("FP32", [1, "a"], "element 1 is a string; FP32 takes numbers"),
        ("FP64", [1, None], "element 1 is null; FP64 takes numbers"),
        ("FP64", [1, False], "element 1 is a boolean; FP64 takes numbers"),
        ("FP32", [0.0, 1e39], "element 1, 1e\\+39, is out of range for FP32"),
        ("FP32", [math.nan, 1e39], "element 1, 1e\\+39, is out of range for FP32"),
        ("FP64", [0, 10**400], "element 1, 1000.*, is out of range for FP64"),
        ("FP32", np.array([0.0, -1e39]), "element 1, -1e\\+39, is out of range for FP32"),
        ("INT32", np.array([1.0, 2.0]), "INT32 takes integers, not float64"),
        ("BOOL", np.array([1, 0]), "BOOL takes true and false, not int64"),
        ("BYTES", np.array([1, 0]), "BYTES takes strings, not int64"),
        ("FP32", None, "non-array as array"),
        ("FP32", 2.0, "non-array as array"),
        ("FP32", "ab", "non-array as array"),
        ("FP32", {"a": 1}, "non-array as array"),
    ],
)
def test_elements_of_another_type_are_refused(name, data, message):
    """An element that is not the datatype's is a 400 that names the input, and the element where there is one."""
    with pytest.raises(BadRequest, match=f"'X'.*{message}"):
        tensors.from_json("X", name, [2], data)


@pytest.mark.parametrize("data", [[1], [1, 2, 3], [], [[1]], np.arange(3)])
def test_the_count_is_the_shapes(data):
    """Too few and too many elements are refused, and both counts are told."""
    with pytest.raises(BadRequest, match=r"'X': Shape does not match true shape of 'data' field: \[1,2\] has 2"):
        tensors.from_json("X", "INT32", [1, 2], data)


@pytest.mark.parametrize("shape", [[2**62, 4], [2**32, 2**32], [2**62, 2**62, 0], [1] * 33, [2**63 - 1]])
def test_huge_shapes_are_refused(shape):
    """A shape whose product overflows, or has too many axes, is refused before anything is allocated."""
    with pytest.raises(BadRequest, match="of input 'X' is too large"):
        tensors.from_json("X", "INT32", shape, [])
    with pytest.raises(BadRequest, match="of input 'X' is too large"):
        tensors.from_binary("X", "INT32", shape, memoryview(b""), "m")


def test_special_floats_are_taken():
    """NaN and the infinities are numbers, and integers are floats where floats are asked for."""
    expected = np.array([math.nan, math.inf, -math.inf, -0.0, 3.0], "f4")
    same(tensors.from_json("X", "FP32", [5], [math.nan, math.inf, -math.inf, -0.0, 3]), expected)
    same(tensors.from_json("X", "FP32", [5], expected.astype("f8")), expected)
    same(tensors.from_json("X", "FP32", [2], [1e-50, 3.4e38]), np.array([0.0, 3.4e38], "f4"))


@given(st.lists(st.floats(width=32), max_size=5))
def test_float32_is_shown_as_its_double(numbers):
    """FP32 goes into JSON as the double that it is: 1.1 is 1.100000023841858."""
    for repeat in (1, 100):
        array = np.array(numbers * repeat, "f4")
        same(np.asarray(tensors.to_json("Y", array, "FP32"), "f8"), np.array(numbers * repeat, "f8"))


def test_arrays_in_any_layout_are_shown_in_row_major_order():
    """Transposed, strided and big-endian arrays, and those without axes, are shown by value."""
    array = np.arange(12, dtype=">i4").reshape(3, 4)
    assert tensors.to_json("Y", array.T[::2], "INT32") == array.T[::2].ravel().tolist()
    assert tensors.to_json("Y", np.array(3, "i4"), "INT32") == [3]
    wide = np.arange(1200, dtype=">f8").reshape(30, 40).T[::2]
    same(np.asarray(tensors.to_json("Y", wide, "FP64")), wide.astype("<f8").ravel())
    assert tensors.to_binary("Y", array.T[::2], "INT32").tobytes() == array.T[::2].astype("<i4").tobytes()


def test_bytes_that_are_no_text_ask_for_binary_data():
    """BYTES that are not UTF-8 cannot go into JSON; the message says what can carry them."""
    with pytest.raises(BadRequest, match="use the binary data format for output Y"):
        tensors.to_json("Y", tensors.object_array([b"ok", b"\xff"]), "BYTES")


@pytest.mark.parametrize("element", [1, None, [b"a"], {"a": 1}])
def test_objects_that_are_no_text_are_the_models_fault(element):
    """An object array with anything but text and bytes is a 500 that names the type."""
    array = np.empty(1, dtype=object)
    array[0] = element
    with pytest.raises(BadAnswer, match=f"'Y' holds a {type(element).__name__}"):
        tensors.to_json("Y", array, "BYTES")


def test_text_of_every_kind_is_bytes():
    """str, bytes and bytearray objects and numpy's S and U arrays are BYTES, text as UTF-8."""
    assert tensors.to_json("Y", np.array(["é", "中"]), "BYTES") == ["é", "中"]
    assert tensors.to_json("Y", np.array([b"ab", b"c"]), "BYTES") == ["ab", "c"]
    mixed = np.array(["é", b"x", bytearray(b"y")], dtype=object)
    assert tensors.to_binary("Y", mixed, "BYTES") == b"\2\0\0\0\xc3\xa9\1\0\0\0x\1\0\0\0y"
    with pytest.raises(BadAnswer, match="'Y' holds half of a surrogate pair"):
        tensors.to_json("Y", np.array(["\ud800"], dtype=object), "BYTES")


# Binary data


@given(arrays())
def test_binary_round_trip(case):
    """Every datatype, BYTES with any bytes in it too, comes back from binary data bit for bit."""
    name, array = case
    data = tensors.to_binary("Y", array, name)
    back = tensors.from_binary("X", name, array.shape, memoryview(data), "m")
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tolist() == array.tolist() if name == "BYTES" else back.tobytes() == array.tobytes()


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_bytes_framing(elements):
    """Each element of BYTES is its length as a little-endian u32, and itself."""
    framed = b"".join(struct.pack("<I", len(element)) + element for element in elements)
    assert tensors.to_binary("Y", tensors.object_array(elements), "BYTES") == framed
    assert tensors.from_binary("X", "BYTES", [len(elements)], memoryview(framed), "m").tolist() == elements


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\1\0\0", "incomplete string length indicator"),
        (b"\0\0\0\0\2\0\0\0a", "expecting string of length 2 but only 1 bytes available"),
        (b"\xff\xff\xff\xffa", "expecting string of length 4294967295"),
        (b"\0\0\0\0", "unexpected number of string elements 1 .* expecting 2"),
        (b"\0\0\0\0" * 3, "unexpected number of string elements 3 .* expecting 2"),
        (b"", "unexpected number of string elements 0 .* expecting 2"),
    ],
)
def test_broken_bytes_framing_is_refused(data, message):
    """BYTES data that is cut off, or has another count than the shape, is a 400 that names the input."""
    with pytest.raises(BadRequest, match=f"(?=.*'X').*{message}"):
        tensors.from_binary("X", "BYTES", [2], memoryview(data), "m")


@given(st.binary(max_size=40), st.sampled_from([*FIXED, "BYTES", "BF16"]), st.lists(st.integers(0, 9), max_size=3))
def test_any_binary_data_is_an_array_of_its_shape_or_refused(data, name, shape):
    """No bytes, datatype and shape together raise anything but BadRequest."""
    with suppress(BadRequest):
        assert list(tensors.from_binary("X", name, shape, memoryview(data), "m").shape) == shape


def test_binary_data_is_read_in_place():
    """An aligned tensor is a writable view on the request's memory; one that is not aligned is an aligned copy."""
    room = np.zeros(5, "f4")
    body = memoryview(room).cast("B")
    array = tensors.from_binary("X", "FP32", [2, 2], body[4:], "m")
    array[0, 0] = 7
    assert room[1] == 7
    moved = tensors.from_binary("X", "FP32", [2, 2], body[1:17], "m")
    assert moved.flags.aligned
    assert not np.shares_memory(moved, room)


def test_binary_data_is_written_in_place():
    """A contiguous little-endian output is sent from its own memory."""
    array = np.arange(4, dtype="f4").reshape(2, 2)
    assert np.shares_memory(np.frombuffer(tensors.to_binary("Y", array, "FP32"), "u1"), array)


def test_booleans_are_zero_or_one():
    """A BOOL byte of another value is refused with its index: numpy would count with it."""
    with pytest.raises(BadRequest, match="element 1 of BOOL input 'X' is the byte 2"):
        tensors.from_binary("X", "BOOL", [2], memoryview(b"\1\2"), "m")


def test_the_byte_size_is_the_shapes():
    """Another size than the shape's is refused with both."""
    with pytest.raises(BadRequest, match=r"mismatch for input 'A' for model 'add'\. Expected 16, got 8"):
        tensors.from_binary("A", "FP32", [1, 4], memoryview(bytes(8)), "add")


# BF16


def test_every_bf16_widens_exactly():
    """Each of the 65,536 BF16 values is the FP32 that ml_dtypes makes of it."""
    wide = tensors.widen_bfloat16(BFLOAT16.view(np.uint16))
    np.testing.assert_array_equal(wide.view("u4"), BFLOAT16.view(np.uint16).astype("u4") << 16)
    numbers = ~np.isnan(wide)
    np.testing.assert_array_equal(wide[numbers], BFLOAT16.astype("f4")[numbers])
    same(tensors.from_binary("X", "BF16", [1 << 16], memoryview(BFLOAT16.tobytes()), "m"), wide)


@given(hnp.arrays(np.uint32, hnp.array_shapes(max_dims=2)).map(lambda bits: bits.view("f4")))
def test_float32_rounds_to_the_nearest_bf16(array):
    """FP32 narrows as ml_dtypes does it, to the nearest and of two to the even one; NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        expected = array.astype(ml_dtypes.bfloat16)
    found = tensors.narrow_bfloat16(array)
    nan = np.isnan(array)
    np.testing.assert_array_equal(found[~nan], expected.view(np.uint16)[~nan])
    assert np.isnan(tensors.widen_bfloat16(found)[nan]).all()
    assert bytes(tensors.to_binary("Y", array, "BF16")) == found.tobytes()


@pytest.mark.parametrize("below", [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_ties_round_to_even(below):
    """Around the middle between any two BF16 neighbours the nearer one is taken, in the middle the even one."""
    bits = (np.arange(1 << 16, dtype="u4") << 16) + np.uint32(below)
    array = bits.view("f4")
    found = tensors.narrow_bfloat16(array)
    nan = np.isnan(array)
    np.testing.assert_array_equal(found[~nan], array[~nan].astype(ml_dtypes.bfloat16).view(np.uint16))
    assert np.isnan(tensors.widen_bfloat16(found)[nan]).all()


def test_bfloat16_arrays_are_written_as_they_are():
    """An extension's bfloat16 array, in any layout, is sent with its own bits."""
    assert bytes(tensors.to_binary("Y", BFLOAT16, "BF16")) == BFLOAT16.tobytes()
    assert bytes(tensors.to_binary("Y", BFLOAT16[::2], "BF16")) == BFLOAT16[::2].tobytes()
    assert bytes(tensors.to_binary("Y", np.array([1.5], ">f4"), "BF16")) == b"\xc0\x3f"


@pytest.mark.parametrize(
    ("shape", "count", "solved"),
    [
        ((-1,), 3, [3]),
        ((-1, 4), 8, [2, 4]),
        ((-1, -1), 8, [1, 8]),
        ((-1, 4, -1), 8, [1, 4, 2]),
        ((2, 2), 9, [2, 2]),
        ((-1, 0), 5, [5, 0]),
        ((), 1, []),
        ((-1, 4), 7, [1, 4]),
    ],
)
def test_variable_axes_are_solved(shape, count, solved):
    """The innermost variable axis takes what the others leave."""
    assert tensors.solve(shape, count) == solved


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3), st.lists, max_leaves=8)
)
def test_any_json_is_an_array_of_its_datatype_or_refused(data):
    """No JSON value raises anything but BadRequest, whatever the datatype."""
    for name, dtype in DATATYPES.items():
        with suppress(BadRequest):
            assert tensors.flat("X", name, data).dtype == dtype

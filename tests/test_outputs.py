"""A model's answer as named outputs, and JSON-like values as tensors."""

from __future__ import annotations

import numpy as np
import pytest

from prefork.errors import BadAnswer
from prefork.payload import Kind, Payload, TensorSpec
from prefork.protocols.outputs import as_array, datatype, named


@pytest.mark.parametrize(
    ("value", "dtype", "elements"),
    [
        (1, "<i8", [1]),
        (2**63, "<u8", [2**63]),
        (0.5, "<f8", [0.5]),
        (True, "|b1", [True]),
        ("a", "|O", ["a"]),
        (b"a\0", "|O", [b"a\0"]),
        ([b"a\0", b"b"], "|O", [b"a\0", b"b"]),
        (["a", b"b"], "|O", ["a", b"b"]),
        ([["a"], ["b"]], "|O", [["a"], ["b"]]),
        ((1, 2), "<i8", [1, 2]),
        ([], "<f8", []),
        (np.float32(1.5), "<f4", [1.5]),
        (np.str_("a"), "|O", ["a"]),
        (np.array(["a", "bc"]), "|O", ["a", "bc"]),
        (np.array([1], ">i4"), ">i4", [1]),
        ([np.array([1, 2]), np.array([3, 4])], "<i8", [[1, 2], [3, 4]]),
    ],
)
def test_values_that_are_tensors(value, dtype, elements):
    """Scalars, lists and arrays are tensors, a scalar one of one element; text keeps every byte."""
    array = as_array(value)
    assert array is not None
    assert (array.dtype.str, array.tolist()) == (dtype, elements)


@pytest.mark.parametrize(
    "value",
    [None, {}, [None], [1, None], ["a", None], [1, "a"], [b"a", 1], [[1], [2, 3]], [{"a": 1}], 2**70, [2**70], 1j, object(), {1}],
    ids=lambda value: repr(value).partition(" at 0x")[0],
)  # fmt: skip
def test_values_that_are_not(value):
    """Nulls, objects, ragged lists, text among numbers and integers of more than 64 bits are no tensors."""
    assert as_array(value) is None


def test_arrays_are_passed_on():
    """The arrays of an answer are its outputs, the same objects."""
    array = np.zeros((2, 2))
    assert named(Payload(Kind.TENSORS, {"a": array}))["a"] is array
    assert named(Payload(Kind.TENSOR, array, "route"))["route"] is array


def test_lists_among_tensors_are_tensors():
    """A named answer may hold lists and scalars; what is no tensor is a 500 that names output and type."""
    assert named(Payload(Kind.TENSORS, {"a": [1, 2]}))["a"].tolist() == [1, 2]
    with pytest.raises(BadAnswer, match="output 'a' is a set"):
        named(Payload(Kind.TENSORS, {"a": {1}}))


@pytest.mark.parametrize("kind", [Kind.FEEDBACK, Kind.MANY])
def test_requests_are_no_answers(kind):
    """Kinds that only requests have are a 500 that names them."""
    with pytest.raises(BadAnswer, match=kind.name):
        named(Payload(kind, None))


def test_bf16_is_declared():
    """FP32 is BF16 where the model's metadata says so; nothing else is."""
    declared = TensorSpec("BF16", (1,), "Y")
    assert datatype("Y", np.zeros(1, "f4"), declared) == "BF16"
    assert datatype("Y", np.zeros(1, "f4")) == "FP32"
    assert datatype("Y", np.zeros(1, "f8"), declared) == "FP64"
    assert datatype("Y", np.zeros(1, ">f4"), declared) == "BF16"

"""Lists in JSON become the arrays that numpy makes of them, by the short way and by the long one."""

from __future__ import annotations

import json as python_json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from json_bodies import LONG, WIRE, array_of, both, same_array
from prefork.errors import BadRequest
from prefork.protocols import json, numbers


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("[[1,2],[3,4]]", "i8", (2, 2)),
        ("[[1,2.0],[3,4]]", "f8", (2, 2)),
        ("[1.5,2]", "f8", (2,)),
        ("[[[1],[2]],[[3],[4]]]", "i8", (2, 2, 1)),
        ("[9007199254740993]", "i8", (1,)),
        ("[9007199254740993,0.5]", "f8", (2,)),
        ("[-9223372036854775808,9223372036854775807]", "i8", (2,)),
        ("[9223372036854775808,18446744073709551615]", "u8", (2,)),
        ("[18446744073709551615,0]", "f8", (2,)),
        ("[-1,9223372036854775808]", "f8", (2,)),
        ("[9223372036854775808,-1,0.5]", "f8", (3,)),
        ("[18446744073709551616]", "O", (1,)),
        ("[99999999999999999999999,1.5]", "O", (2,)),
        ("[true,false]", "?", (2,)),
        ("[true,3]", "i8", (2,)),
        ("[3,true]", "i8", (2,)),
        ("[1,null]", "O", (2,)),
        ("[1.5,null]", "O", (2,)),
        ("[9223372036854775808,0.5]", "f8", (2,)),
        ("[null]", "O", (1,)),
        ("[]", "f8", (0,)),
        ("[[]]", "f8", (1, 0)),
        ("[[],[]]", "f8", (2, 0)),
        ('[[1,"y",2.5]]', "<U32", (1, 3)),
        ('["é","中"]', "<U1", (2,)),
        ('[{"a":1}]', "O", (1,)),
        ("[-0.0]", "f8", (1,)),
        ("[-0]", "i8", (1,)),
        ("[5e-324,1.7976931348623157e308]", "f8", (2,)),
    ],
)
def test_arrays_have_the_dtype_that_numpy_infers(text, dtype, shape):
    """Lists become the array that np.array makes of them, whether numpy ever saw Python numbers or not."""
    wanted = np.array(python_json.loads(text))
    for found in both(f'{{"data":{{"array":{text}}}}}'):
        ours = array_of(found.data.array)
        assert same_array(ours, wanted)
        assert ours.dtype == np.dtype(dtype)
        assert ours.shape == shape
        assert ours.flags.writeable


@pytest.mark.parametrize(
    "text", ["[[1,2],[3]]", "[1,[2]]", "[[1,2],[[3],[4]]]", "[[1],[[]]]", "[[1,2],[[],[3,4]]]", "[[],[1]]"]
)
def test_ragged_lists_are_refused(text):
    """Lists that are no rectangle are a 400 that says so, also when their number of elements fits one."""
    for found in both(f'{{"data":{{"array":{text}}}}}'):
        with pytest.raises(BadRequest, match=r"data\.array is ragged"):
            json.as_array(found.data.array, "data.array")


def test_long_arrays_are_never_python_numbers():
    """A long body's array is an array as soon as it is decoded; texts beside it with brackets do not change that."""
    body = {"data": {"array": [[1.5, 2.5]] * 300, "names": ["x[0]", "\u00e9]"]}, "note": {"a": [[1], "[["]}}
    found = WIRE.decode(python_json.dumps(body, ensure_ascii=False).encode())
    assert isinstance(found.data.array, np.ndarray)
    assert found.data.array.shape == (300, 2)
    assert found.data.names == ["x[0]", "é]"]
    assert found.note == {"a": [[1], "[["]}


def test_escaped_brackets_do_not_hide_raggedness():
    r"""A bracket written as \u005b is not taken for one of the lists."""
    text = '{"data":{"array":[[1,2],[[3],4]],"names":["\\u005b"]}}'
    for found in both(text):
        with pytest.raises(BadRequest, match="ragged"):
            json.as_array(found.data.array)


def test_flat_arrays_keep_every_integer():
    """Where nesting means nothing, and a datatype is told elsewhere, integers up to uint64 are exact beside small ones."""
    body = '{"items":[{"array":[18446744073709551615,0]},{"array":[-1,18446744073709551615]}]}'
    found = WIRE.decode((body + LONG).encode())
    assert found.items[0].array.dtype == np.uint64
    assert [list(part.array) for part in found.items] == [[2**64 - 1, 0], [-1, 2**64 - 1]]


def test_flat_arrays_ignore_nesting():
    """Where nesting means nothing, a long body's numbers come in row-major order."""
    body = '{"items":[{"array":[[1,2],[3,[4]]]},{"array":[[0.5],[1]]},{"array":["a"]},{"array":[true]}]}' + LONG
    found = WIRE.decode(body.encode())
    assert [part.array.tolist() for part in found.items[:2]] == [[1, 2, 3, 4], [0.5, 1.0]]
    assert [part.array for part in found.items[2:]] == [["a"], [True]]


cells = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-5, 5),
)


@settings(max_examples=300, deadline=None)
@given(
    cells=npst.arrays(object, npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3), elements=cells),
)
def test_rectangles_of_numbers_read_as_numpy_reads_them(cells):
    """Any rectangle of numbers gives the bits, the dtype and the shape that json and np.array give."""
    text = python_json.dumps(cells.tolist())
    wanted = np.array(python_json.loads(text))
    found = WIRE.decode((f'{{"data":{{"array":{text}}}}}' + LONG).encode())
    assert same_array(array_of(found.data.array), wanted)


ragged = st.recursive(
    st.one_of(cells, st.booleans(), st.none(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(value=st.lists(ragged, max_size=4), names=st.lists(st.text(max_size=4), max_size=2), escaped=st.booleans())
def test_any_lists_read_as_numpy_reads_them(value, names, escaped):
    """Any lists at all give the array that np.array makes of them, or a 400 where it refuses; names stay names."""
    text = python_json.dumps({"data": {"array": value, "names": names}}, ensure_ascii=escaped)
    assume("\\ud" not in text)
    found = WIRE.decode((text + LONG).encode(errors="ignore"))
    try:
        wanted = np.array(value)
    except ValueError:
        with pytest.raises(BadRequest):
            array_of(found.data.array)
    else:
        assert same_array(array_of(found.data.array), wanted)


def test_random_bits_survive():
    """Finite float64 of any bit pattern come back to the bit."""
    numbers = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    body = b'{"data":{"array":' + json.encode(numbers) + b"}}"
    assert WIRE.decode(body).data.array.tobytes() == numbers.tobytes()


def test_lists_may_be_as_long_as_the_body_allows():
    """More elements than simdjson can count, and a body longer than the thread's parser is kept for, are all there."""
    found = WIRE.decode(b'{"data":{"array":[' + b"1," * (1 << 24) + b'1]},"note":[' + b"0," * (1 << 24) + b"0]}")
    assert len(found.data.array) == len(found.note) == (1 << 24) + 1
    assert WIRE.decode(b'{"data":{"array":' + json.encode(np.arange(1e6)) + b"}}").data.array.sum() == 499999500000
    body = b'{"data":{"array":' + json.encode(np.random.default_rng(0).random(600_000)) + b"}}"
    assert len(body) > 8 << 20
    assert isinstance(WIRE.decode(body).data.array, np.ndarray)


def test_long_texts_do_not_blow_up():
    """A long text among many short ones is not given room in each cell: the texts are objects then, and all texts."""
    array = json.as_array([["x" * 100_000] + ["a", 1, 2.5, True] * 500])
    assert array.dtype == object
    assert array.shape == (1, 2001)
    assert array[0, 1:5].tolist() == ["a", "1", "2.5", "True"]


def test_deep_lists_are_no_numpy_array():
    """Lists nested deeper than numpy has axes are a 400."""
    with pytest.raises(BadRequest, match="nested deeper"):
        json.as_array(python_json.loads("[" * 80 + "1" + "]" * 80))


def test_arrays_outlive_the_parser():
    """An array keeps its numbers when the next body is decoded, and a broken body does no harm to the next."""
    first = WIRE.decode(b'{"data":{"array":' + json.encode(np.arange(2000.0)) + b"}}").data.array
    with pytest.raises(BadRequest):
        WIRE.decode(b'{"data":{"array":' + b"[1,2" + LONG.encode())
    second = WIRE.decode(b'{"data":{"array":' + json.encode(np.arange(2000.0) + 1) + b"}}").data.array
    first += 1
    assert (first == second).all()
    assert numbers._local.parser is not None

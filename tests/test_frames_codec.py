"""Payloads as frames and back: everything that a payload holds crosses, and no bytes do anything but give a value or BadFrame."""

from __future__ import annotations

import datetime as dt
import math
import struct
import time

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prefork import errors
from prefork.errors import BadAnswer, BadRequest, MethodNotAllowed, PreforkError
from prefork.frames.codec import (
    decode_answer,
    decode_error,
    decode_request,
    encode_answer,
    encode_error,
    encode_request,
)
from prefork.frames.layout import ALIGN, ANSWER, LAST, PREFIX, BadFrame, Prefix, TooLarge
from prefork.payload import Cost, Feedback, Kind, Meta, NoMeta, Payload

MOST = 1 << 20
often = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))

texts = st.text(max_size=20)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=20),
    st.dates(),
    st.uuids(),
)
dtypes = st.one_of(
    hnp.scalar_dtypes(),
    hnp.byte_string_dtypes(),
    hnp.unicode_string_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
objects = hnp.arrays(
    object, hnp.array_shapes(max_dims=2, max_side=3), elements=st.one_of(texts, st.binary(max_size=9), st.none())
)
values = st.recursive(
    st.one_of(scalars, arrays, objects),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(texts, st.integers(), st.dates()), inner, max_size=4),
    ),
    max_leaves=8,
)


def crossed(payload, **more):
    """A payload as it comes out at the other end, as an answer."""
    data = encode_answer(payload, **more).whole()
    head, buffers = parts(data)
    return decode_answer(head, buffers)


def asked(payload, **more):
    """A payload as it comes out at the other end, as a request."""
    head, buffers = parts(encode_request(payload, **more).whole())
    return decode_request(head, buffers)


def parts(data):
    prefix = Prefix.read(data, 1 << 40)
    assert len(data) == PREFIX.size + prefix.head + prefix.buffers
    return data[PREFIX.size : PREFIX.size + prefix.head], memoryview(bytearray(data[PREFIX.size + prefix.head :]))


def same(one, other):
    """Whether two values are equal, arrays in dtype and shape as well."""
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert other.flags.writeable
        if one.dtype == object:
            return all(map(same, one.ravel().tolist(), other.ravel().tolist()))
        return one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and type(one) is type(other)


@often
@given(arrays)
def test_arrays(array):
    """Any array of numbers, text or times arrives with its bytes, dtype and shape, and can be written to."""
    assert same(array, crossed(Payload(Kind.TENSOR, array)).payload.value)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_arrays_of_extensions(name):
    """So do those of ml_dtypes, by name."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0], getattr(ml_dtypes, name))
    assert same(array, crossed(Payload(Kind.TENSOR, array)).payload.value)
    assert crossed(Payload(Kind.JSON, {"x": array[0]})).payload.value["x"] == array[0]


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(20)[::3],
        np.arange(20)[::-1],
        np.broadcast_to(np.arange(3), (4, 3)),
        np.arange(100_000.0)[::2],
        np.array([1, 2], ">i4"),
        np.longdouble([1.5]),
        np.zeros((0, 3)),
        np.array(5),
        np.zeros(3, "M8[25s]"),
    ],
    ids=["fortran", "strided", "reversed", "broadcast", "large", "big-endian", "long", "empty", "0-d", "span"],
)
def test_layouts(array):
    """Whatever its layout, an array arrives in C order."""
    found = crossed(Payload(Kind.TENSOR, array)).payload.value
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert np.array_equal(found, array)
    assert found.flags.c_contiguous


@often
@given(values)
def test_values(value):
    """Any value of Python's and numpy's, nested as it likes, arrives as it was; tuples are lists."""
    assert same(value, crossed(Payload(Kind.JSON, value)).payload.value)


@often
@given(values, st.dictionaries(texts, values, max_size=3), st.lists(texts, max_size=3))
def test_fields(value, more, names):
    """So does what else a payload has."""
    answer = Payload(
        Kind.RAW, value, "route", names, more, more, more, [more], message={"a": value}, cost=Cost(1, 2, 3, lead=False)
    )
    found = crossed(answer).payload
    for name in ("kind", "value", "method", "names", "meta", "parameters", "tags", "metrics", "message", "cost"):
        assert same(getattr(answer, name), getattr(found, name)), name


def test_surrogates_and_large_numbers():
    """Text that is no UTF-8 and numbers beyond 64 bits arrive, also as keys and among arrays."""
    value = {
        "\ud800": ["\ud800ü", 2**70, np.arange(2)],
        "n": {2**65: -(2**80), "b": np.array(["\udfff", 2**90], object)},
    }
    assert same(value, crossed(Payload(Kind.JSON, value)).payload.value)


def test_many_and_feedback():
    """Seldon's lists of messages and feedbacks arrive."""
    many = Payload(
        Kind.MANY, [Payload(Kind.TEXT, "a", meta={"puid": "p"}), Payload(Kind.TENSOR, np.ones(2))], "aggregate"
    )
    found = asked(many).payload.value
    assert (found[0].value, found[0].meta, found[1].value.tolist()) == ("a", {"puid": "p"}, [1, 1])
    feedback = Feedback(np.ones(2), ["a", "b"], 0.5, np.zeros(1), None)
    got = asked(Payload(Kind.FEEDBACK, feedback, "send_feedback")).payload.value
    assert (got.features.tolist(), got.names, got.reward, got.truth.tolist(), got.routing) == (
        [1, 1],
        ["a", "b"],
        0.5,
        [0],
        None,
    )


def test_times():
    """When a request was sent and when its time is up go with it."""
    found = asked(Payload(Kind.TEXT, "x"), sent=1.5, deadline=2.5)
    assert (found.sent, found.deadline) == (1.5, 2.5)
    assert asked(Payload(Kind.TEXT, "x")).deadline == math.inf


def test_message_goes_once():
    """A message goes only with requests whose hook wants it, once where it is the value, and never as a protocol's struct."""
    message = {"data": "x" * 1000}
    payload = Payload(Kind.RAW, message, message=message)
    assert len(encode_request(payload).head) < 1100
    assert asked(payload).payload.message == message
    assert asked(payload, whole=False).payload.message is None

    class Incoming(msgspec.Struct):
        data: str

    assert asked(Payload(Kind.TEXT, "x", message=Incoming("y" * 1000))).payload.message is None


@pytest.mark.parametrize("message", [True, False, 0, "", []])
def test_odd_messages(message):
    """Any JSON value may be the whole message."""
    found = asked(Payload(Kind.RAW, message, message=message)).payload
    assert same(message, found.message)
    assert same(message, found.value)


def test_meta_comes_back():
    """What a model has left in the request's meta comes with the answer; what cannot cross and nobody reads is left out."""
    meta = Meta({"puid": "p"}, None)
    meta["tags"] = {"a": np.arange(2)}
    meta["mine"] = object()
    found = crossed(Payload(Kind.TEXT, "x"), meta=meta).meta
    assert found["puid"] == "p"
    assert found["tags"]["a"].tolist() == [0, 1]
    assert "mine" not in found
    assert crossed(Payload(Kind.TEXT, "x"), meta=NoMeta(None)).meta is None
    assert crossed(Payload(Kind.TEXT, "x"), meta={"puid": "p"}).meta is None
    meta["tags"] = {"a": object()}
    with pytest.raises(BadAnswer, match="a object"):
        encode_answer(Payload(Kind.TEXT, "x"), meta)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({1}, "set"),
        (object(), "object"),
        (1j, "complex"),
        (dt.timedelta(1), "datetime.timedelta"),
        (int, "type"),
        (msgspec.UNSET, "Unset"),
    ],
)
def test_refused(value, name):
    """What cannot cross is a BadAnswer that names its type, however deep it is."""
    for deeper in (value, [value], {"a": (value,)}, np.array([value, None], object)):
        with pytest.raises(BadAnswer, match=name):
            encode_answer(Payload(Kind.JSON, deeper))


def test_holds_itself():
    """A value that holds itself is refused."""
    value: list = []
    value.append(value)
    with pytest.raises(BadAnswer, match="nests too deep, or holds itself"):
        encode_answer(Payload(Kind.JSON, value))


@pytest.mark.parametrize(
    "name", [name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, PreforkError)]
)
def test_errors(name):
    """An error of the closed set arrives as the same class with all that it says."""
    kind = getattr(errors, name)
    error = MethodNotAllowed("GET", ["POST"]) if kind is MethodNotAllowed else kind("grüße \ud800")
    error.headers = (("Retry-After", "1"),)
    found = decode_error(encode_error(error).head)
    assert type(found) is kind
    assert (found.status, found.reason, found.headers) == (error.status, error.reason, error.headers)
    assert found.message == error.message.replace("\ud800", "?")


def test_error_of_another_class():
    """One of the user's own class arrives as the closest of the set, with its status and reason."""

    class Mine(BadRequest):
        pass

    found = decode_error(encode_error(Mine("no", status=422, reason="MINE")).head)
    assert (type(found), found.status, found.reason) == (PreforkError, 422, "MINE")


def test_layout():
    """A frame's buffers stand on multiples of 64, and a large one is sent in pieces that are not copied."""
    array = np.arange(100_000)
    frame = encode_answer(Payload(Kind.TENSORS, {"a": np.ones(3, np.uint8), "b": array}))
    assert frame.size == ALIGN + -(-array.nbytes // ALIGN) * ALIGN
    pieces = frame.inline(LAST)
    assert b"".join(pieces) == frame.whole(LAST)
    assert any(isinstance(piece, memoryview) and piece.nbytes == array.nbytes for piece in pieces)
    assert len(encode_answer(Payload(Kind.TENSOR, np.ones(4))).inline()) == 1


def test_too_large():
    """A frame over the limit is refused by its first 16 bytes."""
    with pytest.raises(TooLarge, match="over the limit of 10"):
        Prefix.read(PREFIX.pack(ANSWER, 0, 0, 1, 11), 10)
    with pytest.raises(TooLarge):
        Prefix.read(PREFIX.pack(ANSWER, 0, 0, 1 << 31, 0), 1 << 40)


# --- any bytes ---


SEEDS = [
    encode_request(each).whole()
    for each in (
        Payload(Kind.TENSOR, np.ones((2, 3), "f4"), names=["a"], meta={"a": 1}),
        Payload(Kind.JSON, {"a": [1, 2, {"b": np.arange(3)}], "s": np.float32(1), 2: dt.date(2020, 1, 1), "x": 2**70}),
        Payload(Kind.TENSORS, {"x": np.array([b"a", "b", None, [1]], object), "y": np.array(["x"])}),
        Payload(Kind.FEEDBACK, Feedback(np.ones(2), [], 1.0, np.ones(1), None)),
        Payload(Kind.MANY, [Payload(Kind.TEXT, "x")]),
    )
]
TELLING = [0, 1, 0x7F, 0x80, 0x90, 0xC0, 0xC6, 0xC7, 0xC9, 0xD4, 0xDC, 0xDD, 0xDE, 0xDF, 0xFF]


def survives(head, buffers):
    """Whatever the bytes are, they are a value or a BadFrame, soon."""
    begun = time.monotonic()
    for decode in (decode_request, decode_answer, lambda head, _: decode_error(head)):
        try:  # noqa: SIM105
            decode(head, memoryview(bytearray(buffers)))
        except BadFrame:
            pass
    assert time.monotonic() - begun < 5


@settings(often, max_examples=300)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes(head, buffers):
    """Any head with any buffers."""
    survives(head, buffers)


@settings(often, max_examples=1500)
@given(
    st.sampled_from(SEEDS),
    st.lists(
        st.tuples(st.integers(0, 400), st.one_of(st.sampled_from(TELLING), st.integers(0, 255))), min_size=1, max_size=4
    ),
    st.one_of(st.none(), st.integers(0, 400)),
)
def test_mutated_frames(seed, changes, cut):
    """Any change of a valid one."""
    head, buffers = parts(seed)
    changed = bytearray(head)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    survives(bytes(changed[: None if cut is None else cut % len(changed)]), buffers)


@often
@given(st.binary(min_size=16, max_size=16))
def test_any_prefix(data):
    """Any 16 bytes are a prefix, or a BadFrame."""
    try:
        prefix = Prefix.read(data, MOST)
    except BadFrame:
        return
    assert prefix.head <= MOST
    assert prefix.buffers <= MOST


def _objects(shape, at, size):
    return msgspec.msgpack.Ext(2, msgspec.msgpack.encode((shape, at, size)))


def _request(value):
    packed = (int(Kind.JSON), value, "predict", None, None, None, None, None, False)
    return struct.pack("<dd", 0.0, math.inf) + msgspec.msgpack.encode(packed)


def test_arrays_within_themselves():
    """Arrays of objects that stand for each other do not multiply."""
    inner = msgspec.msgpack.encode([_objects([2], 0, 100), _objects([2], 0, 100)])
    with pytest.raises(BadFrame):
        decode_request(_request(_objects([2], 0, len(inner))), memoryview(bytearray(inner + bytes(100))))


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        ("<f8", [1 << 62, 1 << 62], 8),
        ("<f8", [-1], 8),
        ("<f8", [2.5], 8),
        ("|O", [1], 8),
        ("|V8", [1], 8),
        ("<U999999999999", [0], 0),
        ("f8,f8", [1], 16),
        ("<f8", [1] * 40, 8),
        ("<f8", [1], 8000),
        (5, [1], 8),
    ],
)
def test_arrays_that_cannot_be(dtype, shape, size):
    """Arrays of impossible dtypes, shapes and places are refused."""
    value = msgspec.msgpack.Ext(1, msgspec.msgpack.encode((dtype, shape, 0, size)))
    with pytest.raises(BadFrame):
        decode_request(_request(value), memoryview(bytearray(64)))

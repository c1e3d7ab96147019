"""Payloads whose shape was there before: what a frame says of them is looked up."""

from __future__ import annotations

import numpy as np
import pytest

from prefork.frames import plain
from prefork.frames.codec import decode_answer, encode_answer
from prefork.frames.layout import BadFrame
from prefork.payload import Kind, Payload
from test_frames_codec import asked, crossed, parts, same

PLAIN = [
    Payload(Kind.TENSOR, np.arange(4.0).reshape(1, 4)),
    Payload(Kind.TENSOR, np.arange(4.0).reshape(1, 4), names=["a", "b"]),
    Payload(Kind.TENSOR, np.arange(4.0).reshape(1, 4), names=[]),
    Payload(Kind.TENSOR, np.arange(4.0).reshape(1, 4), meta={}),
    Payload(Kind.TENSOR, np.arange(4.0).reshape(1, 4), meta={"puid": "p"}),
    Payload(Kind.TENSOR, np.arange(4.0).reshape(1, 4), parameters={}),
    Payload(Kind.TENSOR, np.arange(4.0).reshape(1, 4), parameters={"a": 1}),
    Payload(Kind.TENSOR, np.arange(4.0).reshape(1, 4), tags={}, metrics=[]),
    Payload(Kind.TENSOR, np.arange(4.0).reshape(1, 4), "route"),
    Payload(Kind.TENSOR, np.arange(4.0).reshape(4, 1)),
    Payload(Kind.TENSOR, np.arange(4.0, dtype="f4").reshape(1, 4)),
    Payload(Kind.TENSOR, np.arange(4.0, dtype=">f8").reshape(1, 4)),
    Payload(Kind.TENSOR, np.array(["a", "bc"])),
    Payload(Kind.TENSOR, np.zeros((0, 3))),
    Payload(Kind.TENSOR, np.array([1, "a"], object)),
    Payload(Kind.TENSOR, [1.0, 2.0]),
    Payload(Kind.TENSORS, {"x": np.arange(4.0), "y": np.arange(100, dtype="u1")}),
    Payload(Kind.TENSORS, {"y": np.arange(4.0), "x": np.arange(100, dtype="u1")}),
    Payload(Kind.TENSORS, {"x": np.array([b"a"], object), "y": np.arange(3)}),
    Payload(Kind.TENSORS, {}),
    Payload(Kind.JSON, {"x": np.arange(4.0)}),
    Payload(Kind.RAW, np.arange(4.0), message={"a": 1}),
]


@pytest.mark.parametrize("cross", [lambda each: asked(each).payload, lambda each: crossed(each).payload])
def test_known_shapes(cross):
    """A payload of a shape that was there before arrives as the first did, and shares nothing with it."""
    for _ in range(3):
        for each in PLAIN:
            found, again = cross(each), cross(each)
            for name in ("kind", "value", "method", "names", "meta", "parameters", "tags", "metrics", "message"):
                assert same(getattr(each, name), getattr(found, name)), name
                kept = getattr(again, name)
                assert kept is None or not isinstance(kept, list | dict) or kept is not getattr(found, name)
            for one, other in zip(flat(found.value), flat(again.value), strict=True):
                assert not np.shares_memory(one, other)


def flat(value):
    values = value.values() if isinstance(value, dict) else [value]
    return [each for each in values if isinstance(each, np.ndarray)]


@pytest.mark.parametrize("payload", [PLAIN[0], PLAIN[16]], ids=["one", "several"])
def test_known_shape_without_its_bytes(payload):
    """A frame of a known shape whose buffers are too short is refused."""
    head, buffers = parts(encode_answer(payload).whole())
    for _ in range(2):
        decode_answer(head, buffers)
    with pytest.raises(BadFrame):
        decode_answer(head, buffers[:24])


def test_shapes_are_forgotten():
    """So many shapes are remembered, and no more."""
    for size in range(1, 1200):
        assert crossed(Payload(Kind.TENSOR, np.zeros(size, np.uint8))).payload.value.shape == (size,)
    assert len(plain._made) <= 512
    assert len(plain._learnt) <= 512

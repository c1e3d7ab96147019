"""Frames out of bytes, however these come."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefork.frames.codec import decode_answer, encode_answer
from prefork.frames.layout import ALIGN, BadFrame
from prefork.payload import Kind, Payload
from prefork.remote import blocking
from prefork.remote.wire import Cut, Incoming, aligned, rest

MOST = 1 << 30


def frames(data, sizes, incoming):
    """The frames in the data, which come in pieces of these sizes."""
    found, at, number = [], 0, 0
    while True:
        while (frame := incoming.next()) is not None:
            found.append(decode_answer(frame.head, frame.buffers).payload.value)
        if at == len(data):
            return found
        size = sizes[number % len(sizes)]
        number += 1
        place = incoming.place
        if place is None:
            incoming.feed(data[at : at + size])
            at += min(size, len(data) - at)
        else:
            piece = data[at : at + min(size, place.nbytes)]
            place[: len(piece)] = piece
            incoming.filled(len(piece))
            at += len(piece)


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=200), st.integers(0, 3000)), max_size=4),
    st.lists(st.integers(1, 4000), min_size=1),
)
def test_any_pieces(contents, sizes):
    """However a connection's bytes are cut, the same frames come out, and their arrays can be written to."""
    values = [np.arange(each) if isinstance(each, int) else each for each in contents]
    kinds = [Kind.TENSOR if isinstance(each, np.ndarray) else Kind.TEXT for each in values]
    data = b"".join(encode_answer(Payload(kind, each)).whole() for kind, each in zip(kinds, values, strict=True))
    found = frames(data, sizes, Incoming(MOST))
    assert len(found) == len(values)
    for one, other in zip(values, found, strict=True):
        assert np.array_equal(one, other)
        assert isinstance(one, str) or other.flags.writeable


@pytest.mark.parametrize("size", [0, 5, 16, 40, 200_000])
def test_end(size):
    """A connection that ends, between two frames or within one, is Cut."""
    ours, theirs = socket.socketpair()
    data = encode_answer(Payload(Kind.TENSOR, np.ones(100_000))).whole()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        ours.sendall(data[:size])
        ours.close()
        with pytest.raises(Cut):
            blocking.frame(theirs, Incoming(MOST))


def test_limit():
    """A frame that announces more than is taken is refused before any room is made for it."""
    incoming = Incoming(1000)
    incoming.feed(encode_answer(Payload(Kind.TENSOR, np.ones(1000))).whole()[:16])
    with pytest.raises(BadFrame):
        incoming.next()


@given(st.lists(st.binary(max_size=5), max_size=6), st.integers(0, 40))
def test_rest(parts, sent):
    """What is left to send is what was not sent."""
    whole = b"".join(parts)
    assert b"".join(rest(parts, min(sent, len(whole)))) == whole[sent:]


def test_aligned():
    """New memory stands on a boundary that every dtype is content with."""
    assert np.frombuffer(aligned(100), np.uint8).ctypes.data % ALIGN == 0

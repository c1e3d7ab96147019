"""Server-sent events: framing and its inverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.protocols.sse import event, events

DATA = st.binary(max_size=30) | st.text(alphabet="ab: \r\n\ufeff", max_size=12).map(str.encode)

PIECES = st.sampled_from(["data: x", "data:", "data", "event: e", ":", "\n", "\n", "\r", "\r\n", "\ufeff"])
STREAMS = st.lists(PIECES, max_size=12).map("".join).map(str.encode)


@pytest.mark.parametrize(
    ("data", "framed"),
    [
        (b'{"a":1}', b'data: {"a":1}\n\n'),
        (b"", b"data: \n\n"),
        (b"one\ntwo", b"data: one\ndata: two\n\n"),
        (b"one\r\ntwo\rthree", b"data: one\ndata: two\ndata: three\n\n"),
        (b" lead", b"data:  lead\n\n"),
        (b"end\n", b"data: end\ndata: \n\n"),
    ],
)
def test_each_line_of_the_data_is_a_data_field(data, framed):
    """Each line of the data has its own `data: `, and an empty line ends the event."""
    assert event(data) == framed


@given(st.lists(DATA, max_size=5))
def test_what_is_framed_is_read_back(parts):
    """Events come back as they were, their line ends as LF."""
    lines = [data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") for data in parts]
    assert list(events([b"".join(map(event, parts))])) == lines


@given(STREAMS | st.binary(max_size=60), st.data())
def test_chunks_do_not_matter(stream, choose):
    """However a stream is cut, between CR and LF too, its events are the same."""
    cuts = sorted(choose.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert list(events(chunks)) == list(events([stream])) == list(events(bytes([octet]) for octet in stream))


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b": comment\nevent: token\nid: 7\ndata: a\nretry: 1\n\n", [b"a"]),
        (b"event: token\n\n\n", []),
        (b"data\ndata:  b\n\n", [b"\n b"]),
        (b"data: a\n\ndata: cut off\n", [b"a"]),
        (b"database: a\n\n", []),
    ],
)
def test_streams_of_others_are_read(stream, data):
    """Line ends of all three kinds, a byte order mark, comments, other fields and a cut-off event are understood."""
    assert list(events([stream])) == data


def test_an_event_is_there_as_soon_as_its_end_is():
    """An event is given before the next chunk is asked for, when CR ends its lines too."""
    asked = []

    def chunks():
        for chunk in (b"data: a\n\n", b"data: b\r\r", b"data: c\r\n\r\n"):
            asked.append(chunk)
            yield chunk

    assert [(data, len(asked)) for data in events(chunks())] == [(b"a", 1), (b"b", 2), (b"c", 3)]

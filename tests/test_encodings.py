from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.encodings import compress, decompress, preferred
from prefork.errors import BadRequest, PayloadTooLarge, UnsupportedMediaType
from prefork.http import Request, Response


def asked(coding: str, body: bytes, accept: str = "") -> Request:
    headers = {b"content-encoding": coding.encode()}
    if accept:
        headers[b"accept-encoding"] = accept.encode()
    return Request("POST", "/predict", b"", headers, [body])


@given(st.binary(max_size=2000), st.sampled_from(["gzip", "deflate", "GZIP", "x-gzip"]))
def test_body_comes_back(body: bytes, coding: str):
    """What gzip or zlib packed is read as it was."""
    request = asked(coding, gzip.compress(body) if "gzip" in coding.lower() else zlib.compress(body))
    decompress(request, 5000)
    assert request.body == body


def test_members_of_gzip_are_joined():
    """A gzip body of several members is their concatenation, as RFC 1952 says."""
    request = asked("gzip", gzip.compress(b"one ") + gzip.compress(b"two"))
    decompress(request, 100)
    assert request.body == b"one two"


def test_identity_is_left_alone():
    """Content-Encoding: identity changes nothing."""
    request = asked("identity", b"x")
    decompress(request, 10)
    assert request.body == b"x"


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "nonsense"])
def test_other_codings_are_refused(coding: str):
    """An unknown coding is a 415 that says which ones are taken."""
    with pytest.raises(UnsupportedMediaType, match="gzip, deflate") as caught:
        decompress(asked(coding, b"x"), 10)
    assert caught.value.headers == (("Accept-Encoding", "gzip, deflate"),)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"{}"),
        ("gzip", b""),
        ("gzip", gzip.compress(b"x" * 100)[:-4]),
        ("gzip", gzip.compress(b"x") + b"garbage"),
        ("deflate", zlib.compress(b"x")[2:-4]),
    ],
    ids=["not-gzip", "empty", "cut", "trailing", "raw-deflate"],
)
def test_broken_body_is_bad_request(coding: str, body: bytes):
    """A body that is not what it says is a 400, never an empty body."""
    with pytest.raises(BadRequest):
        decompress(asked(coding, body), 1000)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_limit_counts_decompressed_bytes(coding: str):
    """The limit holds for what comes out, exact at the byte."""
    pack = gzip.compress if coding == "gzip" else zlib.compress
    exact = asked(coding, pack(b"x" * 1000))
    decompress(exact, 1000)
    assert len(exact.body) == 1000
    with pytest.raises(PayloadTooLarge):
        decompress(asked(coding, pack(b"x" * 1001)), 1000)


def test_bomb_is_stopped_early():
    """A small body that would unpack to gigabytes is refused without unpacking it."""
    bomb = zlib.compress(bytes(50_000_000))
    with pytest.raises(PayloadTooLarge):
        decompress(asked("deflate", bomb), 1000)


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.5, deflate", "deflate"),
        ("gzip;q=0", None),
        ("identity, gzip;q=0.5", None),
        ("br, *", None),
        ("", None),
        ("gzip;q=bad", None),
    ],
)
def test_client_s_preference_decides(accept: str, coding: str | None):
    """The coding with the best q wins, the first among equals; what we cannot make is identity."""
    assert preferred(accept) == coding


def test_answer_is_compressed_from_its_parts():
    """An answer of several buffers is compressed as one body, and says so."""
    response = Response([b"a" * 600, memoryview(b"b" * 600)])
    compress(asked("", b"", "gzip"), response, 1000)
    assert gzip.decompress(bytes(response.body[0])) == b"a" * 600 + b"b" * 600
    assert ("Content-Encoding", "gzip") in response.headers
    assert ("Vary", "Accept-Encoding") in response.headers


def test_small_answer_is_not_compressed():
    """An answer below the minimum goes out as it is."""
    response = Response(b"small")
    compress(asked("", b"", "gzip"), response, 1000)
    assert response.body == [b"small"]
    assert response.headers == []

"""Which part of a request Seldon's message is in."""

from __future__ import annotations

import base64
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefork.errors import BadRequest, PreforkError, UnsupportedMediaType
from prefork.payload import Kind, Payload
from prefork.protocols import seldon
from seldon_messages import (
    HERE,
    JSON,
    answer_of,
    body_of,
    decode,
    request_of,
)

MULTIPART = "multipart/form-data; boundary=xx"


def multipart(*parts: tuple[str, bytes], end: bytes = b"--xx--\r\n") -> bytes:
    lines = [b"--xx\r\nContent-Disposition: form-data; " + head.encode() + b"\r\n\r\n" + text for head, text in parts]
    return b"\r\n".join([*lines, end])


@pytest.mark.parametrize(
    ("request_", "value"),
    [
        (request_of('{"strData":"b"}'), "b"),
        (request_of('{"strData":"b"}', "application/json; charset=utf-8"), "b"),
        (request_of('{"strData":"b"}', "Application/JSON"), "b"),
        (request_of('{"strData":"b"}', "application/vnd.api+json"), "b"),
        (request_of(query="json=" + quote('{"strData":"q"}'), content_type="", http_method="GET"), "q"),
        (request_of('{"strData":"b"}', query="json=" + quote('{"strData":"q"}')), "q"),
        (request_of('{"strData":"b"}', query="other=1"), "b"),
        (request_of(urlencode({"a": "", "json": '{"strData":"é+&"}'}), "application/x-www-form-urlencoded"), "é+&"),
        (request_of('json={"strData":"f"}', "application/x-www-form-urlencoded", "json={}"), "f"),
        (request_of('json={"strData":"é"}', "application/x-www-form-urlencoded; charset=utf-8"), "é"),
        (request_of(multipart(('name="strData"', b"1")), MULTIPART, "json={}"), "1"),
    ],
)
def test_the_message_is_found(request_, value):
    """A form's field beats the query's, which beats a body that says it is JSON."""
    payload = seldon.decode(request_, "predict")
    assert (payload.kind, payload.value) == (Kind.TEXT, value)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (request_of(), BadRequest),
        (request_of(content_type=""), BadRequest),
        (request_of(content_type="", http_method="GET"), BadRequest),
        (request_of("{"), BadRequest),
        (request_of("null"), BadRequest),
        (request_of("[1]"), BadRequest),
        (request_of("{}", "text/plain"), UnsupportedMediaType),
        (request_of("{}", ""), UnsupportedMediaType),
        (request_of('{"strData":"x"}', "application/x-www-form-urlencoded"), UnsupportedMediaType),
        (request_of("json={", "application/x-www-form-urlencoded"), BadRequest),
        (request_of("json=%FF", "application/x-www-form-urlencoded"), BadRequest),
        (request_of("a&" * 2000, "application/x-www-form-urlencoded"), BadRequest),
        (request_of(query="json={"), BadRequest),
        (request_of(multipart(), MULTIPART), BadRequest),
        (request_of(b"nothing", MULTIPART), BadRequest),
        (request_of(b"nothing", "multipart/form-data"), BadRequest),
        (request_of(multipart(('name="strData"', b"1"), end=b""), MULTIPART), BadRequest),
    ],
)
def test_no_message_is_the_clients_error(request_, error):
    """A request without a message is a 400, a body that says it is something else a 415."""
    with pytest.raises(error) as caught:
        seldon.decode(request_, "predict")
    assert caught.value.status == (415 if error is UnsupportedMediaType else 400)


def test_missing_json_says_so_first():
    """The message begins as the wrapper's does, and then says where the JSON breaks."""
    with pytest.raises(BadRequest, match=r"^Can't find JSON in data: .*\(byte 11\)"):
        decode('{"strData":x}')
    with pytest.raises(BadRequest, match=r"^Can't find JSON in data: "):
        seldon.decode(request_of(), "predict")


def test_multipart_fields_are_the_messages():
    """Fields are JSON but for strData, the file binData is base64 of its bytes, other files are text."""
    data = b'{"names":["a"],"ndarray":[[1]]}'
    payload = seldon.decode(
        request_of(multipart(('name="data"', data), ('name="meta"', b'{"puid":"p"}')), MULTIPART), "predict"
    )
    assert (payload.value.tolist(), payload.names, payload.meta) == ([[1]], ["a"], {"puid": "p"})
    file = 'name="binData"; filename="f"\r\nContent-Type: image/png'
    payload = seldon.decode(request_of(multipart((file, b"\x00\xff")), MULTIPART), "predict", raw=True)
    assert (payload.kind, payload.value) == (Kind.BYTES, b"\x00\xff")
    assert payload.message == {"binData": base64.b64encode(b"\x00\xff").decode()}
    text = 'name="strData"; filename="f"'
    assert seldon.decode(request_of(multipart((text, "é".encode())), MULTIPART), "predict").value == "é"


@pytest.mark.parametrize(
    "part", [('name="data"', b"{bad"), ('name="strData"; filename="f"', b"\xff"), ('name="meta"', b"[" * 300)]
)
def test_multipart_errors_name_the_field(part):
    """A field that is no JSON, or no text, is a 400 that names it."""
    with pytest.raises(BadRequest, match=part[0][6:10]):
        seldon.decode(request_of(multipart(part), MULTIPART), "predict")


@pytest.mark.parametrize(
    ("request_", "value"),
    [
        (request_of(b"\xff\x00", "image/png"), b"\xff\x00"),
        (request_of(), b""),
        (request_of(query="json=%7B", content_type="", http_method="GET"), "{"),
        (request_of("json=%C3%A9", "application/x-www-form-urlencoded"), "é"),
    ],
)
def test_passthrough(request_, value):
    """Passed through, the body is not parsed, and text or bytes that are answered go out as they are."""
    payload = seldon.decode(request_, "predict", passthrough=True)
    assert (payload.kind, payload.value, payload.message) == (Kind.RAW, value, value)
    for answer in (b"not json", "not json", bytearray(b"not json")):
        for kind in (Kind.RAW, Kind.TEXT):
            response = seldon.encode(Payload(kind, answer), payload, HERE)
            assert response.body == [b"not json"]
            assert response.content_type == JSON
    assert body_of(seldon.encode(Payload(Kind.RAW, {"a": 1}), payload, HERE)) == {"a": 1}
    assert body_of(seldon.encode(answer_of([[1]]), payload, HERE))["data"]["tensor"]["values"] == [1]


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60), st.sampled_from([JSON, MULTIPART, "application/x-www-form-urlencoded", ""]), st.booleans()
)
def test_any_bytes_are_a_payload_or_a_4xx(body, content_type, long):
    """Whatever bytes are sent, whatever they say they are, nothing worse than a 4xx comes of them."""
    request = request_of(body + b" " * 3000 * long, content_type)
    try:
        status = 200 if seldon.decode(request, "predict") else 0
    except PreforkError as error:
        status = error.status
    assert status in {200, 400, 415}

"""Where in a request Seldon's JSON message is: multipart form, form field `json`, query parameter `json`, or the body.

The first of these that is there counts. In a multipart form each field is one field of the message.
Source of the rule: the Seldon Core Python wrapper.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from prefork.errors import BadRequest, UnsupportedMediaType
from prefork.http import Request
from prefork.protocols import json

MISSING = "Can't find JSON in data"
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_FIELDS = 1000

_value: json.Wire[Any] = json.Wire(Any)


class Verbatim(str):
    """The text of a field `json` that is passed through, not parsed."""

    __slots__ = ()


def select(request: Request, max_depth: int) -> bytes | str | dict[str, Any]:
    """The message as JSON text, or, from a multipart form, as a dict.

    Raises BadRequest if there is none, UnsupportedMediaType for a body that says it is something else.
    """
    if request.headers.get(b"content-type") == b"application/json" and not request.query and request.body:
        return request.body  # what nearly every client sends
    media_type = _media_type(request)
    if media_type == _MULTIPART:
        return dict(_multipart(request, max_depth))
    text = _json_field(request, media_type)
    if text is not None:
        return text
    if not request.body:
        raise BadRequest(f"{MISSING}: the request has no body")
    if media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json")):
        return request.body
    raise UnsupportedMediaType(
        f"the Content-Type is {media_type[:100] or 'missing'}: send JSON as application/json, or in the form field `json`"
    )


def verbatim(request: Request) -> bytes | Verbatim:
    """The body as it came, whatever it is, or the text of the field `json`."""
    text = _json_field(request, _media_type(request))
    if text is None:
        return request.body
    return Verbatim(_utf8(text, "json") if isinstance(text, bytes) else text)


def _media_type(request: Request) -> str:
    return request.header(b"content-type").partition(";")[0].strip().lower()


def _json_field(request: Request, media_type: str) -> bytes | str | None:
    if media_type == _FORM:
        for name, value in _fields(request.body):
            if name == "json":
                return value.encode("latin-1")
    return request.query_value("json") if request.query else None


def _fields(body: bytes) -> list[tuple[str, str]]:
    """A form's fields, their bytes as Latin-1: the JSON decoder judges the UTF-8."""
    text = body.decode("latin-1")
    try:
        return parse_qsl(text, keep_blank_values=True, encoding="latin-1", max_num_fields=_FIELDS)
    except ValueError:
        raise BadRequest(f"the form has more than {_FIELDS} fields") from None


def _multipart(request: Request, max_depth: int) -> Iterator[tuple[str, Any]]:
    """The message's fields: form fields as JSON but for strData, files as text but for binData, which is base64."""
    fields, files = _parts(request)
    for name, text in fields.items():
        yield name, text if name == "strData" else _decoded(name, text, max_depth)
    for name, file in files.items():
        content = file.stream.read()
        yield name, base64.b64encode(content).decode() if name == "binData" else _utf8(content, name)


def _parts(request: Request) -> tuple[Any, Any]:
    from werkzeug.exceptions import HTTPException
    from werkzeug.formparser import FormDataParser
    from werkzeug.http import parse_options_header

    _, options = parse_options_header(request.header(b"content-type"))
    parser = FormDataParser(stream_factory=_memory, max_form_parts=_FIELDS, silent=False)
    body = request.body
    try:
        _, fields, files = parser.parse(io.BytesIO(body), _MULTIPART, len(body), options)
    except (ValueError, HTTPException) as error:
        raise BadRequest(f"{MISSING}: the multipart form is broken: {error}") from None
    return fields, files


def _memory(*_: object, **__: object) -> io.BytesIO:
    """Where a file of a form is put: the whole body, of bounded size, is in memory already."""
    return io.BytesIO()


def _decoded(name: str, text: str, max_depth: int) -> Any:
    try:
        return _value.decode(text, max_depth)
    except BadRequest as error:
        raise BadRequest(f"form field {name[:100]!r}: {error.message}") from None


def _utf8(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"form field {name[:100]!r} is not UTF-8 text: {error.reason} (byte {error.start})") from None

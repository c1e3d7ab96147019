"""The WSGI front: a Flask application with one catch-all route over the service, for sync, gthread and gevent workers.

It is also the home of a user's own Flask blueprint: here the blueprint's routes stand beside the catch-all, and
under ASGI `FlaskMount` lends them, and the blueprint's error handlers, to the other front.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, cast

from flask import Blueprint, Flask, request
from flask import Response as FlaskResponse
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import RequestRedirect

from prefork import deadlines
from prefork.endpoints import encode_error
from prefork.errors import BadRequest, PayloadTooLarge, PreforkError, RequestTooSlow
from prefork.http import Request, Response
from prefork.metrics import clock
from prefork.service import Service

log = logging.getLogger("prefork")

WAITED = "prefork.waited"
"""The key in the environment under which a worker passes the seconds for which the request waited for a thread."""

GONE = "prefork.gone"
"""The key under which it passes a function that tells whether the client has hung up."""

_METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]
_PIECE = 1 << 20
_REMEMBERED = 4096


def blueprints(user_object: object) -> list[Blueprint]:
    """The Flask blueprints that a user's class carries: `model_error_handler` (Seldon's name) and `blueprint`."""
    found = (getattr(user_object, name, None) for name in ("model_error_handler", "blueprint"))
    return list({id(b): b for b in found if isinstance(b, Blueprint)}.values())


def wsgi_front(service: Service, own: list[Blueprint]) -> Flask:
    """The Flask application over a service, the user's own blueprints in it."""
    app = _flask(own)
    limit = service.site.settings.max_body_size
    app.config["MAX_CONTENT_LENGTH"] = limit  # for the user's own views
    if own:
        app.after_request(_allow_origin)
    meter = service.site.meter

    def serve(path: str = "") -> FlaskResponse:  # noqa: ARG001 - Flask passes it, the service looks for itself
        environ = request.environ
        asked = _request(environ)
        meter.enter_shared()
        try:
            response = _answer(asked, environ)
        except BaseException:
            meter.leave_shared(asked)
            raise
        asked.status = response.status
        answer = _to_flask(response)
        answer.call_on_close(partial(meter.leave_shared, asked))
        return answer

    def _answer(asked: Request, environ: dict[str, Any]) -> Response:
        try:
            asked.chunks = _read(environ, limit)
            if service.calls_model(asked):
                _begin(asked, environ, service.site.settings.request_timeout)
        except PreforkError as error:
            return service.refuse(asked, error)
        asked.times.append(clock())
        return service.answer(asked)

    app.add_url_rule("/", "prefork_root", serve, methods=_METHODS, provide_automatic_options=False)
    app.add_url_rule("/<path:path>", "prefork", serve, methods=_METHODS, provide_automatic_options=False)
    return app


class _Direct(Flask):
    """A Flask without anybody's hooks: what stands around a view for them is left out, which a small request notices."""

    def full_dispatch_request(self) -> FlaskResponse:
        """The view's own answer."""
        if request.routing_exception is not None or request.url_rule is None:
            return super().full_dispatch_request()
        view = self.view_functions[request.url_rule.endpoint]
        return cast("FlaskResponse", view(**(request.view_args or {})))


def _flask(own: list[Blueprint]) -> Flask:
    app = (Flask if own else _Direct)(__name__, static_folder=None)
    app.url_map.merge_slashes = False
    app.register_error_handler(HTTPException, _as_json)  # before the blueprints, so that their own handlers win
    for blueprint in own:
        app.register_blueprint(blueprint)
    return app


def _as_json(error: HTTPException) -> FlaskResponse:
    """Flask's own HTML pages (404, 405, 500 of a user's view) as our JSON."""
    reason = error.name.upper().replace(" ", "_")
    said = PreforkError(f"{error.name}: {error.description}", status=error.code or 500, reason=reason)
    return _to_flask(encode_error(request.path, said))


def _allow_origin(answer: FlaskResponse) -> FlaskResponse:
    """What the service puts on our own answers, for those of the user's views."""
    if "Access-Control-Allow-Origin" not in answer.headers:
        answer.headers["Access-Control-Allow-Origin"] = request.headers.get("Origin", "*")
    return answer


def _request(environ: dict[str, Any]) -> Request:
    headers = {
        _header_name(name): value.encode("latin-1") for name, value in environ.items() if name.startswith("HTTP_")
    }
    if content_type := environ.get("CONTENT_TYPE"):
        headers[b"content-type"] = content_type.encode("latin-1")
    if content_length := environ.get("CONTENT_LENGTH"):
        headers[b"content-length"] = content_length.encode("latin-1")
    asked = Request(
        environ["REQUEST_METHOD"],
        environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace"),
        environ.get("QUERY_STRING", "").encode("latin-1"),
        headers,
        (),
    )
    asked.environ = environ
    asked.peer = environ.get("REMOTE_ADDR")
    return asked


@lru_cache(_REMEMBERED)
def _header_name(key: str) -> bytes:
    """What WSGI calls HTTP_CONTENT_ENCODING, as it came but in lower case."""
    return key[5:].replace("_", "-").lower().encode("latin-1")


def _begin(asked: Request, environ: dict[str, Any], limit: float) -> None:
    asked.arrived = time.monotonic() - environ.get(WAITED, 0.0)
    if limit or deadlines.HEADER in asked.headers:
        deadlines.begin(asked, limit)
    asked.cancelled = environ.get(GONE, asked.cancelled)


def _read(environ: dict[str, Any], limit: int) -> list[bytes]:
    try:
        return _read_body(environ, limit)
    except TimeoutError as error:
        slow = RequestTooSlow(f"the body did not come whole: {error} (read_timeout)")
        slow.headers = (("Connection", "close"),)
        raise slow from None


def _read_body(environ: dict[str, Any], limit: int) -> list[bytes]:
    length = environ.get("CONTENT_LENGTH")
    body = environ["wsgi.input"]
    if length:
        return _read_length(body, int(length), limit)
    if "chunked" not in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
        return [b""]
    chunks: list[bytes] = []
    size = 0
    while chunk := body.read(_PIECE):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
    return chunks


def _read_length(body: Any, length: int, limit: int) -> list[bytes]:
    if length > limit:
        raise _too_large(limit)
    data: bytes = body.read(length)
    if len(data) != length:
        raise BadRequest(f"the body ended after {len(data)} of {length} bytes")
    return [data]


def _too_large(limit: int) -> PayloadTooLarge:
    error = PayloadTooLarge(f"the body is over {limit} bytes (max_body_size)")
    error.headers = (("Connection", "close"),)  # what is left of the body is not read
    return error


def _to_flask(response: Response) -> FlaskResponse:
    body = response.body
    content: Any
    if response.stream is not None:
        content = cast("Iterator[bytes]", response.stream)
    else:
        content = bytes(body[0]) if len(body) == 1 else b"".join(body)
    answer = FlaskResponse(content, response.status, response.headers, content_type=response.content_type)
    if response.length is not None:
        answer.headers["Content-Length"] = str(response.length)
    return answer


class FlaskMount:
    """The user's blueprints, run in a Flask application of their own, for a front that is not Flask."""

    def __init__(self, own: list[Blueprint]) -> None:
        self._app = _flask(own)
        self._has = lru_cache(_REMEMBERED)(self._match)  # bounded: a client can make up any number of paths

    def handles(self, method: str, path: str) -> bool:
        """Whether a blueprint has that path."""
        return self._has(method, path)

    def _match(self, method: str, path: str) -> bool:
        adapter = self._app.url_map.bind("localhost")
        try:
            adapter.match(path, method=method)
        except RequestRedirect:
            return True
        except MethodNotAllowed:
            return True
        except NotFound:
            return False
        return True

    def respond(self, asked: Request) -> Response:
        """Run the blueprint's view."""
        with self._app.request_context(_environ(asked)):
            try:
                return _from_flask(self._app.full_dispatch_request())
            except Exception as error:  # noqa: BLE001 - what the user's view raises, Flask logs and turns into its 500
                return _from_flask(self._app.handle_exception(error))

    def handle_error(self, error: BaseException, asked: Request) -> Response | None:
        """What the blueprint's error handler answers, or None when it has none for that exception."""
        if not isinstance(error, Exception):
            return None
        with self._app.request_context(_environ(asked)):
            return _from_handler(self._app, error)


class FlaskHandlers:
    """The blueprints' error handlers inside the Flask front, where a request context is there already."""

    def __init__(self, app: Flask) -> None:
        self._app = app

    def handles(self, method: str, path: str) -> bool:  # noqa: ARG002 - Flask has routed before the service is asked
        """Never: Flask has routed before the service is asked."""
        return False

    def respond(self, asked: Request) -> Response:
        """Never called; see `handles`."""
        raise LookupError(asked.path)

    def handle_error(self, error: BaseException, asked: Request) -> Response | None:  # noqa: ARG002 - Flask has it
        """What the blueprint's error handler answers, or None when it has none for that exception."""
        return _from_handler(self._app, error) if isinstance(error, Exception) else None


def _from_handler(app: Flask, error: Exception) -> Response | None:
    if isinstance(error, HTTPException) or app._find_error_handler(error, request.blueprints) is None:  # noqa: SLF001 - Flask has no public way to ask
        return None
    return _from_flask(app.make_response(app.handle_user_exception(error)))


def _environ(asked: Request) -> dict[str, Any]:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": asked.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": asked.path.encode("utf-8").decode("latin-1"),
        "QUERY_STRING": asked.query.decode("latin-1"),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(asked.body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(asked.body),
        "wsgi.errors": _Errors(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in asked.headers.items():
        key = name.decode("latin-1").upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        environ.setdefault(key, value.decode("latin-1"))
    return environ


class _Errors:
    """WSGI's error stream: the log."""

    def write(self, text: str) -> int:
        log.error(text.rstrip())
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


def _from_flask(answer: FlaskResponse) -> Response:
    skip = {"content-type", "content-length"}
    headers = [(name, value) for name, value in answer.headers.items() if name.lower() not in skip]
    body = answer.get_data()
    return Response(body, status=answer.status_code, content_type=answer.content_type or "text/html", headers=headers)

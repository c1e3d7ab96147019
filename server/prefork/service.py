"""One request in, one response out, and never an exception: what both fronts put behind their socket.

A service finds the route, lets its endpoint decode, asks the instance, lets the endpoint encode, and turns whatever
went wrong into the error body of the route's protocol. It knows neither HTTP's bytes nor a model's insides.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Protocol

from prefork import audit, counting, deadlines, encodings
from prefork.complaints import Complaints
from prefork.conversation import Conversation
from prefork.endpoints import ROUTES, Call, Site, encode_error, stream_error
from prefork.errors import NotImplementedHere, PreforkError
from prefork.http import Request, Response
from prefork.instance import Instance, LocalInstance
from prefork.later import Again, Later
from prefork.metrics import clock, kind_of
from prefork.model.custom_metrics import stamped
from prefork.model.method import METRIC_NAMES
from prefork.model.reschedule import Reschedule
from prefork.payload import Kind, Payload
from prefork.routes import Route, Router
from prefork.single import only, only_async

log = logging.getLogger("prefork")

_PREFLIGHT = [
    ("Access-Control-Allow-Methods", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"),
    ("Access-Control-Allow-Headers", "*"),
]


class Mount(Protocol):
    """The user's own pages: another application's routes and error handlers."""

    def handles(self, method: str, path: str) -> bool:
        """Whether the path is one of its own."""
        ...

    def respond(self, request: Request) -> Response:
        """Answer a request to one of its paths."""
        ...

    def handle_error(self, error: BaseException, request: Request) -> Response | None:
        """Answer for an exception that the user has a handler for; None when there is none."""
        ...


class Service:
    """The endpoints over a catalogue of models.

    `answer` and `answer_async` never raise; a stream's later failure becomes its last event. defers: whether the front takes
    Later and Again for a response.
    """

    defers = False

    def __init__(self, site: Site, mount: Mount | None = None) -> None:
        self.site = site
        self.mount = mount
        self._complaints = Complaints()
        self.router = Router(ROUTES)

    def calls_model(self, request: Request) -> bool:
        """Whether the request runs the user's code, so that it must not run on an event loop."""
        route = self._find(request)
        return route.calls_model if route is not None else self.mount is not None

    def answer(self, request: Request) -> Response:
        """Answer on this thread."""
        request.times.append(clock())
        result: Response | Call | None = None
        try:
            result = self._enter(request)
            if isinstance(result, Call):
                response = self._run(request, result)
                if isinstance(response, Later):
                    return response
            else:
                response = result
            self._leave(request, response)
        except Reschedule:
            return self._again(request, result)
        except Exception as error:  # noqa: BLE001 - the last line of defence: whatever it is, the client gets an answer
            return self._fail(request, error)
        request.times.append(clock())
        return response

    async def answer_async(self, request: Request) -> Response:
        """Answer on the event loop, awaiting the instance."""
        request.times.append(clock())
        try:
            result = self._enter(request)
            if isinstance(result, Call):
                result = await self._run_async(request, result)
            response = self._leave(request, result)
        except Exception as error:  # noqa: BLE001 - as above
            return self._fail(request, error)
        request.times.append(clock())
        return response

    def refuse(self, request: Request, error: PreforkError) -> Response:
        """The answer to a request that the front could not take whole, or not in time."""
        request.failure = kind_of(error)
        self._audit(request, error)
        return self._leave(request, encode_error(request.path, error))

    def _decompress(self, request: Request) -> None:
        try:
            encodings.decompress(request, self.site.settings.max_body_size)
        except PreforkError as error:
            self._audit(request, error)
            raise

    def _audit(self, request: Request, error: PreforkError) -> None:
        route = self._find(request)
        if route is not None:
            audit.refused(route.endpoint, request, error)

    def _enter(self, request: Request) -> Response | Call:
        if b"content-encoding" in request.headers:
            self._decompress(request)
        if request.method == "OPTIONS":
            return self._preflight(request)
        route = self._find(request)
        if route is None:
            if self._is_own(request):
                assert self.mount is not None
                return self.mount.respond(request)
            raise self.router.refusal(request.method, request.path)
        result: Response | Call = route.endpoint(self.site, request)
        return result

    def _find(self, request: Request) -> Route | None:
        route: Route | None = request.route
        if route is None and not self._is_own(request):
            route, request.params = self.router.find(request.method, request.path)
            request.route = route
        return route

    def _is_own(self, request: Request) -> bool:
        # The user's own path wins over ours, as it does in Flask.
        return self.mount is not None and self.mount.handles(request.method, request.path)

    def _preflight(self, request: Request) -> Response:
        allowed = self.router.methods(request.path) or ["OPTIONS"]
        return Response(content_type="text/plain", headers=[("Allow", ", ".join(allowed)), *_PREFLIGHT])

    def _run(self, request: Request, call: Call) -> Response:
        try:
            return self._ask(request, call)
        except PreforkError:
            counting.failed(self.site.meter, request, call)
            raise

    def _ask(self, request: Request, call: Call) -> Response:
        is_stream = self._begin(request, call)
        is_bounded = request.deadline != math.inf
        if is_bounded:
            deadlines.check_queue(request)
        if is_stream and _sends(call.instance):
            return self._converse(request, call, self._open(request, call))
        answers = call.instance.infer(call.payload)
        if call.event is None:
            answer = only(answers)
            self._answered(request, call, answer)
            if is_bounded:
                deadlines.check_answer(request)
            return call.encode(answer)
        first = next(answers, None)
        counting.executed(self.site.meter, request, call)
        return _event_stream(
            self._events(request, partial(self._event, call), first, answers) if first is not None else iter(())
        )

    def _begin(self, request: Request, call: Call) -> bool:
        is_stream = self._check_stream(call)
        if call.timeout is not None:
            deadlines.lower(request, call.timeout)
        call.payload.cancelled = request.is_cancelled
        call.payload.deadline = request.deadline
        request.times.append(clock())
        return is_stream

    def _answered(self, request: Request, call: Call, answer: Payload) -> None:
        counting.executed(self.site.meter, request, call)
        if answer.metrics or answer.kind is Kind.RAW:
            self._record(call, answer)
        counting.charge(self.site.meter, call, answer)

    def _record(self, call: Call, answer: Payload) -> None:
        """Count what the class gave as metrics, before encoding: that may fail, and clients may not be shown them."""
        metrics = answer.metrics or []
        method = METRIC_NAMES[call.payload.method]
        meta = answer.value.get("meta") if answer.kind is Kind.RAW and isinstance(answer.value, dict) else None
        if isinstance(meta, dict):
            metrics = [*metrics, *stamped(meta.get("metrics"), method)]
        self.site.meter.custom.record(metrics, method)

    def _check_stream(self, call: Call) -> bool:
        is_stream = call.instance.spec.streams and call.payload.method == "predict"
        if is_stream and call.event is None and not call.of_stream:
            raise NotImplementedHere("this model streams its answers: ask at /v2/models/NAME/generate_stream")
        return is_stream

    async def _run_async(self, request: Request, call: Call) -> Response:
        if self._begin(request, call) and _sends(call.instance):
            return await self._hear(request, call, self._open(request, call).on_loop())
        try:
            return await self._ask_async(request, call)
        except Reschedule:
            await asyncio.sleep(0)
            return await self._ask_async(request, call)
        except asyncio.CancelledError:
            request.was_begun = call.payload.begun
            counting.failed(self.site.meter, request, call)
            raise
        except PreforkError:
            counting.failed(self.site.meter, request, call)
            raise

    async def _ask_async(self, request: Request, call: Call) -> Response:
        if call.event is None:
            ask = getattr(call.instance, "answer_async", None)
            answer = await (
                ask(call.payload) if ask is not None else only_async(call.instance.infer_async(call.payload))
            )
            self._answered(request, call, answer)
            return call.encode(answer)
        answers = call.instance.infer_async(call.payload)
        first = await anext(answers, None)
        counting.executed(self.site.meter, request, call)
        event = partial(self._event, call)
        return _event_stream(self._events_async(request, event, first, answers) if first is not None else iter(()))

    def _again(self, request: Request, call: Response | Call | None) -> Response:
        """Go on with a request that the model has handed back: later, where there are others and the front can wait."""
        assert isinstance(call, Call)
        produce = partial(self._answer_again, request, call)
        return Again(produce) if self.defers else produce()

    def _answer_again(self, request: Request, call: Call) -> Response:
        request.times.pop()  # it is about to begin once more
        try:
            response = self._leave(request, self._run(request, call))
        except Exception as error:  # noqa: BLE001 - as in `answer`
            return self._fail(request, error)
        request.times.append(clock())
        return response

    def _open(self, request: Request, call: Call) -> Conversation:
        assert isinstance(call.instance, LocalInstance)
        return call.instance.open(call.payload, partial(self._sent, request, call))

    def _sent(self, request: Request, call: Call, answer: Payload) -> Any:
        if call.event is not None:
            return self._event(call, answer)
        self._answered(request, call, answer)
        return call.encode(answer)

    def _converse(self, request: Request, call: Call, conversation: Conversation) -> Response:
        if self.defers:
            finish = partial(self._finish, request, call, conversation)
            return Later(partial(_work, conversation), finish, conversation.outbox)
        parts = conversation.in_thread()
        if call.event is None:
            response: Response = only(parts)
            if request.deadline != math.inf:
                deadlines.check_answer(request)
            return response
        first = next(parts, None)
        counting.executed(self.site.meter, request, call)
        return _event_stream(self._events(request, _same, first, parts) if first is not None else iter(()))

    async def _finish(self, request: Request, call: Call, conversation: Conversation) -> Response:
        try:
            response = self._leave(request, await self._hear(request, call, conversation.parts()))
        except Exception as error:  # noqa: BLE001 - as in `answer`
            return self._fail(request, error)
        request.times.append(clock())
        return response

    async def _hear(self, request: Request, call: Call, parts: AsyncIterator[Any]) -> Response:
        if call.event is None:
            response: Response = await only_async(parts)
            return response
        first = await anext(parts, None)
        counting.executed(self.site.meter, request, call)
        return _event_stream(self._events_async(request, _same, first, parts) if first is not None else iter(()))

    def _leave(self, request: Request, response: Response) -> Response:
        _allow_origin(request, response)
        settings = self.site.settings
        if response.stream is None:
            if settings.compression and b"accept-encoding" in request.headers:
                encodings.compress(request, response, settings.compress_min_size)
            if request.method == "HEAD":
                response.length = sum(map(len, response.body))
                response.body = []
        return response

    def _fail(self, request: Request, error: Exception) -> Response:
        request.failure = kind_of(error)
        handled = self._user_handler(request, error)
        if handled is not None:
            return self._leave(request, handled)
        self._complaints.tell(request, error)
        if not isinstance(error, PreforkError):
            error = PreforkError(f"{type(error).__name__}: {error}")
        return self._leave(request, encode_error(request.path, error))

    def _user_handler(self, request: Request, error: Exception) -> Response | None:
        if self.mount is None:
            return None
        return self.mount.handle_error(error.__cause__ or error, request)

    def _events(
        self, request: Request, event: Callable[[Any], bytes], first: Any, rest: Iterator[Any]
    ) -> Iterator[bytes]:
        try:
            yield event(first)
            for answer in rest:
                if request.deadline != math.inf:
                    deadlines.check_answer(request)
                yield event(answer)
        except Exception as error:  # noqa: BLE001 - the status is sent: the last event has to say it
            request.failure = kind_of(error)
            yield last_event(error)
        finally:
            close = getattr(rest, "close", None)
            if close is not None:
                close()

    async def _events_async(
        self, request: Request, event: Callable[[Any], bytes], first: Any, rest: AsyncIterator[Any]
    ) -> AsyncIterator[bytes]:
        try:
            yield event(first)
            async for answer in rest:
                yield event(answer)
        except Exception as error:  # noqa: BLE001 - as above
            request.failure = kind_of(error)
            yield last_event(error)
        finally:
            await rest.aclose()  # type: ignore[attr-defined]

    def _event(self, call: Call, answer: Payload) -> bytes:
        if answer.metrics:
            self._record(call, answer)
        counting.charge(self.site.meter, call, answer)
        assert call.event is not None
        return call.event(answer)


def _sends(instance: Instance) -> bool:
    return isinstance(instance, LocalInstance) and instance.sends


def _work(conversation: Conversation) -> Response | None:
    return Again(partial(_work, conversation)) if conversation.ask() else None


def _same(part: bytes) -> bytes:
    return part


def _event_stream(stream: Iterator[bytes] | AsyncIterator[bytes]) -> Response:
    return Response(
        content_type="text/event-stream; charset=utf-8", headers=[("Cache-Control", "no-cache")], stream=stream
    )


def last_event(error: Exception) -> bytes:
    """The event with which a stream breaks off; what went wrong is logged."""
    if isinstance(error, PreforkError) and error.is_logged:
        log.error("a stream broke off: %s", error)
    else:
        log.error("a stream broke off", exc_info=error.__cause__ or error)
    return stream_error(error if isinstance(error, PreforkError) else PreforkError(str(error)))


_ANYBODY = ("Access-Control-Allow-Origin", "*")


def _allow_origin(request: Request, response: Response) -> None:
    origin = request.headers.get(b"origin")
    if origin is None:
        response.headers.append(_ANYBODY)
    else:
        response.headers.append(("Access-Control-Allow-Origin", origin.decode("latin-1")))
        response.headers.append(("Vary", "Origin"))

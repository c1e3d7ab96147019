"""One of Seldon's methods on a user's object: which hooks answer it, in which order, and what stands in for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from prefork.errors import BadAnswer, BadRequest, ModelLoadError, NotImplementedHere
from prefork.model import answers, raw, signature
from prefork.model.declared import Declared
from prefork.model.features import features
from prefork.model.hooks import Hook, found, is_async, is_default, is_stream, is_unimplemented
from prefork.model.lent import NOTHING, Lent, lent
from prefork.model.typed import Named, is_named
from prefork.payload import Feedback, Kind, Payload

Call = Callable[[Payload], Any]

METRIC_NAMES = {
    "predict": "predict",
    "transform_input": "inputtransform",
    "transform_output": "outputtransform",
    "route": "router",
    "aggregate": "aggregate",
    "send_feedback": "feedback",
    "health_status": "health",
}
"""Each method, and what its custom metrics say as their `method`."""


class Method:
    """A method of a user's object.

    calls: its hooks, called with a request one behind the other until one neither returns NotImplemented nor raises
    SeldonNotImplementedError; the last stands in for the hooks and always answers.
    convert: what a hook returned, as a payload. named: the `predict` of the named style, if it is one. lent: what it is lent.
    """

    def __init__(self, user_object: object, name: str) -> None:
        self.name = name
        self.metric_name = METRIC_NAMES[name]
        plain = found(user_object, name)
        whole = [(hook, prepare) for hook, prepare in _whole_hooks(user_object, name) if hook is not None]
        self.lent = lent(plain) if name == "predict" and plain is not None else NOTHING
        self.named = _named(plain, self.lent) if name == "predict" and plain is not None else None
        self.is_raw = bool(whole)
        hooks = [hook for hook, _ in whole] + [hook for hook in (plain,) if hook is not None]
        self.exists = bool(hooks)
        self.is_async = any(map(is_async, hooks))
        self.streams = self.named.streams if self.named is not None else plain is not None and is_stream(plain)
        if self.streams and self.lent.sends:
            raise ModelLoadError("predict takes a sender and gives an iterator; it must answer in one way")
        self.streams = self.streams or self.lent.sends
        self.convert = self.named.answer if self.named is not None else _CONVERTERS.get(name, answers.payload)
        calls: list[Call] = [raw.caller(hook, prepare) for hook, prepare in whole]
        if plain is not None:
            calls.append(self.named.call if self.named is not None else _plain_call(name, plain, self.lent))
        calls.append(_stand_in(user_object, name, only_raw=self.is_raw and plain is None))
        self._calls = tuple(calls)

    def call(self, request: Payload) -> Any:
        """What the hooks return; that of an `async def` is still to be awaited."""
        for call in self._calls:
            try:
                result = call(request)
            except Exception as error:
                if not is_unimplemented(error) or call is self._calls[-1]:
                    raise
            else:
                if result is not NotImplemented:
                    return result
        raise AssertionError("the last call always answers")

    async def call_async(self, request: Payload) -> Any:
        """What the hooks return, awaited."""
        for call in self._calls:
            try:
                result = call(request)
                if hasattr(result, "__await__"):
                    result = await result
            except Exception as error:
                if not is_unimplemented(error) or call is self._calls[-1]:
                    raise
            else:
                if result is not NotImplemented:
                    return result
        raise AssertionError("the last call always answers")


def _named(predict: Hook, lends: Lent) -> Named | Declared | None:
    if isinstance(predict, Declared):
        return predict
    return Named(predict, lends) if is_named(predict) else None


def _whole_hooks(user_object: object, name: str) -> list[tuple[Hook | None, Callable[[Any], Any]]]:
    feedback = name == "send_feedback"
    return [
        (found(user_object, f"{name}_rest"), raw.text if feedback else _same),
        (found(user_object, f"{name}_raw"), raw.feedback if feedback else _same),
    ]


def _same(message: Any) -> Any:
    return message


def _plain_call(name: str, hook: Hook, lends: Lent) -> Call:
    if name == "health_status":
        return lambda _request: hook()
    if name == "aggregate":
        return _aggregate_call(hook)
    if name == "send_feedback":
        return _feedback_call(hook)
    if name == "predict" and not signature.arguments(lends.without(hook), 2, "meta").fits:
        raise ModelLoadError(
            "predict cannot be called: it must take X, or X and names, or X, names and meta, and defaults for the rest; "
            "or annotate every parameter to take inputs by name"
        )
    if lends != NOTHING:
        return _call_with_lent(hook, lends)
    caller = signature.caller(hook)
    tensor = Kind.TENSOR
    if signature.arguments(hook, 2, "meta").keyword:
        return _call_with_meta(caller)

    def call(request: Payload) -> Any:
        if request.kind is tensor:  # the hot path, in one call less
            names = request.names
            return caller(request.value, [] if names is None else names, None)
        x, names = features(request)
        return caller(x, names, None)

    return call


def _call_with_meta(caller: Callable[..., Any]) -> Call:
    def call(request: Payload) -> Any:
        x, names = features(request)
        return caller(x, names, request.meta_for_model())

    return call


def _call_with_lent(hook: Hook, lends: Lent) -> Call:
    takes = signature.arguments(lends.without(hook), 2, "meta")

    def call(request: Payload) -> Any:
        values = features(request)[: takes.positional]
        more = lends.arguments(request)
        if takes.keyword:
            more["meta"] = request.meta_for_model()
        return hook(*values, **more)

    return call


def _aggregate_call(hook: Hook) -> Call:
    caller = signature.list_caller(hook)

    def call(request: Payload) -> Any:
        pairs = [features(part) for part in _parts(request)]
        return caller([x for x, _ in pairs], [names for _, names in pairs])

    return call


def _parts(request: Payload) -> list[Payload]:
    if request.kind is not Kind.MANY:
        raise BadRequest("aggregate takes a list of messages")
    return list(request.value)


def _feedback_call(hook: Hook) -> Call:
    caller = signature.feedback_caller(hook)

    def call(request: Payload) -> Any:
        said = request.value
        if not isinstance(said, Feedback):
            raise BadRequest("send_feedback takes a feedback")
        return caller(said.features, said.names, said.reward, said.truth, said.routing)

    return call


def _stand_in(user_object: object, name: str, *, only_raw: bool) -> Call:
    """What answers where no hook does."""
    default = is_default(getattr(user_object, name, None)) or found(user_object, name) is not None

    def refuse(_request: Payload) -> Any:
        raise BadRequest(f"{name} is not implemented" if default else f"{name.capitalize()} not defined")

    def answer(request: Payload) -> Any:
        if only_raw and request.message is None and request.kind is not Kind.RAW and name != "health_status":
            raise NotImplementedHere(
                f"the model has only {name}_raw, which takes Seldon's messages: ask Seldon's paths"
            )
        if name == "health_status":
            return "not implemented - assuming healthy" if default else "healthy"
        if name == "send_feedback":
            return None
        x, _ = features(request)
        return np.empty(0) if name == "predict" else x

    return refuse if name in {"route", "aggregate"} else answer


def _route_answer(result: Any, request: Payload) -> Payload:
    if isinstance(result, bool | np.bool_) or not isinstance(result, int | np.integer):
        raise BadAnswer(f"Routing response must be int but got {result!r}")
    return Payload(Kind.TENSOR, np.array([[int(result)]]), request.method)


def _feedback_answer(result: Any, request: Payload) -> Payload:
    return answers.payload(np.empty(0) if result is None else result, request)


_CONVERTERS = {"route": _route_answer, "send_feedback": _feedback_answer}

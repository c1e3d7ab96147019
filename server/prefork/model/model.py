"""A user's object as a model: requests in, answers out, through whichever of Seldon's hooks it has.

Hooks are found by duck typing and their arguments decided when the model is made, and again once `load()` ran. For one
answer the order is: the method, the metrics that its result carries, `metrics()`, `class_names`, `tags()`. A part of a
stream has class names, and the tags and metrics of its own SeldonResponse. What the user's code raises is raised as it is.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from prefork import forks
from prefork.errors import BadAnswer, BadMetadata, NotImplementedHere
from prefork.model import loader
from prefork.model.custom_metrics import Metric, stamped
from prefork.model.declared import Declared
from prefork.model.hooks import found, is_default, is_unimplemented
from prefork.model.loading import loading
from prefork.model.loop import Loop
from prefork.model.metadata import Metadata, defaults, describe, ports, tensors
from prefork.model.method import METRIC_NAMES, Method
from prefork.model.sample import given, payload, sample
from prefork.model.sender import Sender
from prefork.model.signature import takes_nothing
from prefork.payload import Kind, ModelSpec, Payload, Sample

log = logging.getLogger("prefork")

_ORDINARY = frozenset({np.ndarray, list, tuple, dict, str, bytes})
"""Types of results that are neither awaited nor iterated nor opened."""


class Model:
    """One object of a user's class.

    spec: what it takes; `inputs` is None for Seldon's style. is_async: whether what it mainly does is `async def`.
    custom_service: its own blocking service, if it has one. sends: whether `predict` answers through a sender.
    image: the container image, for the metadata's defaults. Raises ModelLoadError for a `predict` that cannot be called.
    """

    spec: ModelSpec
    is_async: bool
    sends: bool

    def __init__(
        self,
        user_object: object,
        name: str,
        version: str = "1",
        metadata: Mapping[str, Any] | None = None,
        image: str = "",
    ) -> None:
        forks.end()
        self.user_object = user_object
        self._named = (name, version, image)
        self._override = metadata
        self._metadata: Metadata | BadMetadata | None = None
        self._sample: Sample | msgspec.UnsetType | None = msgspec.UNSET
        self._loop = Loop()
        self._find_hooks()

    def load(self) -> None:
        """Call the object's `load()`, once, and look for its hooks again. Whatever it raises propagates."""
        with loading(self.spec.name, self.user_object):
            loader.load(self.user_object)
        forks.end()
        self._sample = msgspec.UNSET
        self._find_hooks()
        if not any(method.exists for method in self._methods.values()):
            log.warning("%s has no predict and no other hook: every answer will be empty", self.spec.name)

    def close(self) -> None:
        """Call the object's `close()`, if it has one that needs no argument, and end the event loop."""
        try:
            hook = found(self.user_object, "close")
            if hook is not None and takes_nothing(hook):
                result = hook()
                if hasattr(result, "__await__"):
                    self._loop.run(result)
        finally:
            self._loop.close()

    def metadata(self) -> dict[str, Any]:
        """Seldon's /metadata body; `init_metadata()` is called once. Raises BadMetadata naming the field."""
        said = self._described()
        if isinstance(said, BadMetadata):
            raise said
        body: dict[str, Any] = msgspec.to_builtins(said)
        return body

    @property
    def described(self) -> ModelSpec:
        """The spec with what the metadata declares and the model's own example: for showing, not for checking requests."""
        spec = self._shown()
        if self._sample is msgspec.UNSET:
            self._sample = self._sampled(spec)
        return spec if self._sample is None else msgspec.structs.replace(spec, example=self._sample)

    @property
    def custom_service(self) -> Callable[[], None] | None:
        """The object's own blocking service, if it has one."""
        return found(self.user_object, "custom_service")

    def answer(self, request: Payload) -> Payload:
        """The one answer to a request; an asynchronous hook is waited for.

        Raises NotImplementedHere for a method that does not exist or streams, and whatever the user's code raises.
        """
        method = self._method(request)
        result = self._result(method, request)
        if type(result) not in _ORDINARY and hasattr(result, "__next__"):
            _close(result)
            raise self._several()
        return self._answered(method, result, request)

    def stream(self, request: Payload) -> Iterator[Payload]:
        """The answers to a request: those of a generator as they come, else the only one, which is there at once.

        Closing the iterator closes the user's generator. Raises as `answer` does.
        """
        method = self._method(request)
        result = self._result(method, request)
        if type(result) not in _ORDINARY and hasattr(result, "__next__"):
            return self._parts(method, result, request)
        return iter((self._answered(method, result, request),))

    async def answer_async(self, request: Payload) -> Payload:
        """As `answer`, on the running event loop; a plain function is called in place."""
        method = self._method(request)
        result = await method.call_async(request)
        if type(result) in _ORDINARY or not (hasattr(result, "__anext__") or hasattr(result, "__next__")):
            return self._answered(method, result, request)
        if hasattr(result, "aclose"):
            await result.aclose()
        raise self._several()

    async def stream_async(self, request: Payload) -> AsyncIterator[Payload]:
        """As `stream`, on the running event loop; a plain function or generator is run in place."""
        method = self._method(request)
        result = await method.call_async(request)
        if type(result) in _ORDINARY:
            yield self._answered(method, result, request)
        elif hasattr(result, "__anext__"):
            try:
                async for part in result:
                    yield self._answered(method, part, request, is_part=True)
            finally:
                if hasattr(result, "aclose"):
                    await result.aclose()
        elif hasattr(result, "__next__"):
            for answer in self._parts(method, result, request):
                yield answer
        else:
            yield self._answered(method, result, request)

    def ask(self, request: Payload, sender: Sender) -> None:
        """Have `predict` answer through the sender, which may go on when this returns. Raises what the user's code raises."""
        request.sender = sender
        try:
            result = self._result(self._methods["predict"], request)
        finally:
            request.sender = None
        _check_nothing(result)

    async def ask_async(self, request: Payload, sender: Sender) -> None:
        """As `ask`, on the running event loop; a plain function is called in place."""
        request.sender = sender
        try:
            result = await self._methods["predict"].call_async(request)
        finally:
            request.sender = None
        _check_nothing(result)

    def part(self, part: Any, request: Payload) -> Payload:
        """A part that `predict` has sent, as a payload."""
        return self._answered(self._methods["predict"], part, request, is_part=True)

    def _find_hooks(self) -> None:
        owner = self.user_object
        self._methods = {name: Method(owner, name) for name in METRIC_NAMES}
        self._metrics = found(owner, "metrics")
        self._tags = found(owner, "tags")
        class_names = getattr(type(owner), "class_names", None)
        self._no_names = class_names if is_default(class_names) else None
        predict = self._methods["predict"]
        main = next((method for method in self._methods.values() if method.exists), predict)
        self.is_async = main.is_async
        self.sends = predict.lent.sends
        declared = self._declared = predict.named if isinstance(predict.named, Declared) else None
        self.spec = ModelSpec(
            self._named[0],
            self._named[1],
            platform=(declared and declared.platform) or "python",
            inputs=predict.named.inputs if predict.named else None,
            outputs=predict.named.outputs if predict.named else None,
            streams=predict.streams,
            raw=frozenset(name for name, method in self._methods.items() if method.is_raw),
            labels=declared.labels if declared is not None else {},
            is_batched=declared is None or declared.takes.is_batched,
        )

    def _shown(self) -> ModelSpec:
        if self._declared is not None:
            return msgspec.structs.replace(self.spec, inputs=self._declared.takes.described())
        said = self._described()
        if isinstance(said, BadMetadata) or self.spec.inputs is not None:
            return self.spec
        return msgspec.structs.replace(self.spec, inputs=tensors(said.inputs), outputs=tensors(said.outputs))

    def _sampled(self, spec: ModelSpec) -> Sample | None:
        try:
            said = given(self.user_object) if self._declared is None else self._declared.example
            return None if said is None else sample(payload(said, named=spec.inputs is not None), spec.inputs)
        except Exception as error:  # noqa: BLE001 - the user's own; nobody has asked the model yet
            log.warning("%s: its example is not shown: %s: %s", spec.name, type(error).__name__, error)
            return None

    def _described(self) -> Metadata | BadMetadata:
        if self._metadata is None:
            inputs = self._declared.takes.described() if self._declared is not None else self.spec.inputs
            base = defaults(*self._named) | {"inputs": ports(inputs), "outputs": ports(self.spec.outputs)}
            try:
                self._metadata = describe(self.user_object, self._override, base)
            except BadMetadata as error:
                self._metadata = error
        return self._metadata

    def _method(self, request: Payload) -> Method:
        method = self._methods.get(request.method)
        if method is None:
            raise NotImplementedHere(f"there is no method {request.method!r}")
        return method

    def _result(self, method: Method, request: Payload) -> Any:
        """What the hook returned, with everything asynchronous about it waited for or made synchronous."""
        result = self._loop.run(method.call_async(request)) if method.is_async else method.call(request)
        if type(result) in _ORDINARY:
            return result
        if hasattr(result, "__await__"):
            result = self._loop.run(result)
        return self._loop.iterate(result) if hasattr(result, "__anext__") else result

    def _several(self) -> NotImplementedHere:
        return NotImplementedHere(
            f"the model answers in parts, which this endpoint cannot carry; ask /v2/models/{self.spec.name}/generate_stream"
        )

    def _parts(self, method: Method, parts: Iterator[Any], request: Payload) -> Iterator[Payload]:
        try:
            for part in parts:
                yield self._answered(method, part, request, is_part=True)
        finally:
            _close(parts)

    def _answered(self, method: Method, result: Any, request: Payload, *, is_part: bool = False) -> Payload:
        if forks.is_child:
            forks.leave()
        own = None
        if type(result) not in _ORDINARY:
            if type(result) is Payload:
                return result
            if hasattr(result, "data") and hasattr(result, "tags") and hasattr(result, "metrics"):
                own, result = result, result.data
        metrics = tags = None
        if own is not None or (self._metrics is not None and not is_part):
            metrics = self._all_metrics(method, own, is_part=is_part)
        answer = method.convert(result, request)
        if answer.kind is Kind.TENSOR and answer.names is None and answer.value.ndim > 1:
            answer.names = self._class_names()
        if own is not None or (self._tags is not None and not is_part):
            tags = self._all_tags(own, is_part=is_part)
        answer.metrics, answer.tags = metrics, tags
        return answer

    def _all_metrics(self, method: Method, own: Any, *, is_part: bool) -> list[Metric] | None:
        carried = stamped(own.metrics, method.metric_name) if own is not None else []
        given = None if is_part or self._metrics is None else _optional(self._metrics)
        return stamped(given, method.metric_name) + carried or None

    def _all_tags(self, own: Any, *, is_part: bool) -> dict[str, Any] | None:
        given = None if is_part or self._tags is None else _optional(self._tags)
        carried = own.tags if own is not None else None
        for source, tags in (("tags()", given), ("the SeldonResponse", carried)):
            if tags is not None and not isinstance(tags, Mapping):
                raise BadAnswer(f"the tags of {source} must be a dict, not {type(tags).__qualname__}")
        return {**(given or {}), **(carried or {})} or None

    def _class_names(self) -> list[Any] | None:
        # Looked up each time: models set it as an attribute when they have loaded, or even later.
        names = getattr(self.user_object, "class_names", None)
        if names is None:
            return None
        if callable(names):
            if self._no_names is not None and getattr(names, "__func__", None) is self._no_names:
                return None
            names = _optional(names)
        if names is None or isinstance(names, list):
            return names
        return names.tolist() if hasattr(names, "tolist") else list(names)


def _check_nothing(result: Any) -> None:
    if result is not None:
        _close(result)
        raise BadAnswer(f"predict has a sender and must return None, not a {type(result).__qualname__}")


def _close(parts: Any) -> None:
    close = getattr(parts, "close", None)
    if close is not None:
        close()


def _optional(hook: Callable[[], Any]) -> Any:
    try:
        return hook()
    except Exception as error:
        if is_unimplemented(error):
            return None
        raise

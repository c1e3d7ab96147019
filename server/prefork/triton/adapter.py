"""A TritonPythonModel as an object with `load`, `predict` and `close`, which a `Model` takes as it takes any class's.

`execute` is called with one request at a time; a batch that the server has put together is one request of so many rows. The
contract: https://github.com/triton-inference-server/python_backend#usage
"""

from __future__ import annotations

import inspect
import json
import sys
import weakref
from collections.abc import Mapping
from typing import Any

import msgspec

from prefork.errors import BadAnswer, ModelLoadError, NotImplementedHere
from prefork.model.declared import Declared
from prefork.model.loader import TRITON
from prefork.model.tensor_inputs import Tensors, as_array
from prefork.payload import Payload, TensorSpec
from prefork.protocols.values import to_bytes
from prefork.repository.config import ModelConfig
from prefork.repository.triton import read_json
from prefork.triton import backend_utils
from prefork.triton.exception import TritonModelException
from prefork.triton.request import InferenceRequest
from prefork.triton.responder import Many, One, ResponseSender
from prefork.triton.response import payload
from prefork.triton.tensor import Tensor

CLASS = "TritonPythonModel"
_SAID = ("max_batch_size", "input", "output", "dynamic_batching", "model_transaction_policy")
"""What of a configuration decides how requests are served; the rest was read before there was a process."""


class Place(msgspec.Struct, frozen=True):
    """Where an instance is: the model's name, version and folder, its number among its siblings, and whether it has a GPU."""

    name: str
    version: str
    folder: str
    number: int = 0
    has_gpu: bool = False


def stand_in() -> None:
    """Make `import triton_python_backend_utils` work."""
    sys.modules.setdefault(TRITON, backend_utils)


class Adapter:
    """The model. config: Triton's, with every default. `predict` is there once `load` ran."""

    def __init__(self, cls: type[Any], config: Mapping[str, Any], place: Place) -> None:
        if not callable(getattr(cls, "execute", None)):
            raise ModelLoadError(f"{CLASS} has no execute")
        self._cls = cls
        self._config = dict(config)
        self._place = place
        self._model: Any = None
        self._said = ModelConfig()

    def load(self) -> None:
        """Complete the configuration, make the model and initialize it. Raises ModelLoadError, and what the model raises."""
        config = self._completed()
        self._said = _ours(config)
        self._model = self._cls()
        if hasattr(self._model, "initialize"):
            self._model.initialize(self._arguments(config))
        self.predict = _predict(self._model, self._said, self._place)

    def complete(self, config: ModelConfig) -> ModelConfig:
        """Our own configuration with what `auto_complete_config` has added to it, once `load` ran."""
        if not hasattr(self._cls, "auto_complete_config"):
            return config
        said = self._said
        found = msgspec.structs.replace(
            config, inputs=said.inputs, outputs=said.outputs, decoupled=config.decoupled or said.decoupled
        )
        if config.batching is not None:
            return found
        return msgspec.structs.replace(found, max_rows=said.max_rows, batching=said.batching)

    def close(self) -> None:
        """Finalize the model."""
        model, self._model = self._model, None
        self.__dict__.pop("predict", None)
        if hasattr(model, "finalize"):
            model.finalize()

    def _completed(self) -> dict[str, Any]:
        complete = getattr(self._cls, "auto_complete_config", None)
        if complete is None:
            return self._config
        found = complete(backend_utils.ModelConfig(self._config))
        if not isinstance(found, backend_utils.ModelConfig):
            raise ModelLoadError(f"auto_complete_config must return a ModelConfig, not a {type(found).__name__}")
        return found.as_dict()

    def _arguments(self, config: Mapping[str, Any]) -> dict[str, str]:
        place = self._place
        return {
            "model_config": json.dumps(config),
            "model_instance_kind": "GPU" if place.has_gpu else "CPU",
            "model_instance_name": f"{place.name}_0_{place.number}",
            "model_instance_device_id": "0",  # an instance sees its own device as the only one
            "model_repository": place.folder,
            "model_version": place.version,
            "model_name": place.name,
        }


def _ours(config: Mapping[str, Any]) -> ModelConfig:
    try:
        return read_json({key: config[key] for key in _SAID if key in config}).config
    except ValueError as error:
        raise ModelLoadError(str(error)) from None


def _predict(model: Any, ours: ModelConfig, place: Place) -> Declared:
    if not inspect.iscoroutinefunction(model.execute):
        return (_Sends if ours.decoupled else _Answers)(model.execute, ours, place)
    if not ours.decoupled:
        raise ModelLoadError("an asynchronous execute needs model_transaction_policy { decoupled: true }")
    return _SendsAsync(model.execute, ours, place)


class _Answers(Declared):
    """One response for a request."""

    def __init__(self, execute: Any, config: ModelConfig, place: Place) -> None:
        takes = Tensors(config.inputs) if config.inputs is not None else _Anything()
        super().__init__(takes, config.outputs, {}, lambda _gathered, _parameters: {})
        self._execute = execute
        self._place = place
        self._outputs = [each.name for each in config.outputs or ()]

    def __call__(self, request: Payload) -> Payload:
        """The response. Raises BadAnswer, the response's error, and what the model raises."""
        way = One(request.method, request.cancelled)
        senders: weakref.WeakSet[ResponseSender] = weakref.WeakSet()
        was_asked = False

        def sender() -> ResponseSender:
            nonlocal was_asked
            was_asked = True
            made = ResponseSender(way)
            senders.add(made)
            return made

        responses = self._execute([self._request(request).serve(sender, request.cancelled)])
        if responses is None and was_asked:
            return way.wait(lambda: len(senders))
        if not isinstance(responses, list):
            raise BadAnswer(f"Expected a list in the execute return, found type '{type(responses).__name__}'.")
        if len(responses) != 1:
            raise BadAnswer(f"execute has returned {len(responses)} responses for 1 request")
        return payload(responses[0], request.method)

    call = __call__

    def _request(self, request: Payload) -> InferenceRequest:
        said = request.parameters or {}
        timeout = said.get("timeout", 0)
        return InferenceRequest(
            inputs=[Tensor(name, array) for name, array in self.takes.gather(request).items()],
            requested_output_names=self._outputs,
            correlation_id=said.get("sequence_id", 0),
            model_name=self._place.name,
            model_version=int(self._place.version) if self._place.version.isdecimal() else -1,
            timeout=timeout if isinstance(timeout, int) else 0,
            parameters=said,
        )


class _Sends(_Answers):
    """Any number of responses, through a sender."""

    def __init__(self, execute: Any, config: ModelConfig, place: Place) -> None:
        super().__init__(execute, config, place)
        # What a predict is lent is told by its signature.
        names = ("request", "sender")
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def call(self, request: Payload) -> Any:
        """Have `execute` send responses. Raises NotImplementedHere where nobody can take them."""
        _check_none(self._execute([self._lent(request)]))

    def _lent(self, request: Payload) -> InferenceRequest:
        # Nothing here keeps the sender: when the model lets go of it without an end, the request ends.
        sender, request.sender = request.sender, None
        if sender is None:
            raise NotImplementedHere("the model may answer in parts: ask /v2/models/NAME/generate_stream")
        found = ResponseSender(Many(sender, request.method))
        return self._request(request).serve(lambda: found, request.cancelled)


class _SendsAsync(_Sends):
    """As `_Sends`, of an `async def execute`."""

    async def __call__(self, request: Payload) -> Any:  # type: ignore[override]
        """As `call`."""
        await self.call(request)

    async def call(self, request: Payload) -> Any:  # type: ignore[override]
        """Have `execute` send responses."""
        _check_none(await self._execute([self._lent(request)]))


def _check_none(returned: Any) -> None:
    if returned is not None:
        raise TritonModelException("a decoupled execute must return None; it has a response sender to answer with")


class _Anything:
    """The inputs of a model whose configuration declares none."""

    is_batched = False

    def described(self) -> tuple[TensorSpec, ...]:
        """Nothing is known of them."""
        return ()

    def gather(self, request: Payload) -> dict[str, Any]:
        """The tensors by name."""
        if isinstance(request.value, dict):
            return {name: to_bytes(as_array(value), name) for name, value in request.value.items()}
        return {"INPUT": to_bytes(as_array(request.value), "INPUT")}

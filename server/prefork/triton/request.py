"""`InferenceRequest`: a request as `execute` gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from prefork.triton.exception import TritonModelException
from prefork.triton.responder import ResponseSender
from prefork.triton.tensor import Tensor

_NO_CALLS = "a model cannot ask another one from here (BLS): ask it over HTTP"


class InferenceRequest:
    """A request. timeout: in microseconds. parameters: V2's, of the request."""

    def __init__(  # noqa: PLR0917 - Triton's signature
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        parameters: Mapping[str, Any] | None = None,
        **_rest: Any,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self._id = request_id
        self._correlation = correlation_id
        self._inputs = list(inputs)
        self._outputs = list(requested_output_names)
        self._flags = flags
        self._timeout = timeout
        self._parameters = dict(parameters or {})
        self._sender: Callable[[], ResponseSender] | None = None
        self._cancelled: Callable[[], bool] | None = None

    def serve(self, sender: Callable[[], ResponseSender], cancelled: Callable[[], bool] | None) -> InferenceRequest:
        """Itself, as one that somebody waits for.

        sender: makes what `get_response_sender` gives. cancelled: whether nobody waits any more.
        """
        self._sender, self._cancelled = sender, cancelled
        return self

    def inputs(self) -> list[Tensor]:
        """The tensors, in the request's order."""
        return self._inputs

    def request_id(self) -> str:
        """The client's id; empty here: it does not reach the model."""
        return self._id

    def correlation_id(self) -> int | str:
        """Of a sequence; 0 without one."""
        return self._correlation

    def flags(self) -> int:
        """Of a sequence."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Set them."""
        self._flags = flags

    def timeout(self) -> int:
        """Microseconds that the client has given it; 0 for none."""
        return self._timeout

    def parameters(self) -> str:
        """V2's parameters, as JSON."""
        return msgspec.json.encode(self._parameters).decode()

    def requested_output_names(self) -> list[str]:
        """The outputs that may be wanted: all that are declared. What the client has not asked for is left out later."""
        return list(self._outputs)

    def trace(self) -> None:
        """There is no trace."""

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._cancelled is not None and self._cancelled()

    def get_response_sender(self) -> ResponseSender:
        """What to send responses with instead of returning them."""
        if self._sender is None:
            raise TritonModelException("this request is nobody's: there is nobody to send a response to")
        return self._sender()

    def set_release_flags(self, _flags: int) -> NoReturn:
        """Not here. Raises TritonModelException."""
        raise TritonModelException(
            "a request cannot be scheduled again here: raise prefork.Reschedule in a class of your own"
        )

    def exec(self, **_how: Any) -> NoReturn:
        """Not here. Raises TritonModelException."""
        raise TritonModelException(_NO_CALLS)

    async def async_exec(self, **_how: Any) -> NoReturn:
        """Not here. Raises TritonModelException."""
        raise TritonModelException(_NO_CALLS)

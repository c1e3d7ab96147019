"""`InferenceResponse` and `TritonError`: how a model answers, and how it says that it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefork.errors import BadAnswer, BadRequest, ModelFailed, NotFound, NotImplementedHere, PreforkError, Unavailable
from prefork.model.custom_metrics import stamped
from prefork.model.method import METRIC_NAMES
from prefork.payload import Kind, Payload
from prefork.triton.exception import TritonModelException
from prefork.triton.metric_family import changes
from prefork.triton.tensor import Tensor


class TritonError:
    """Why a request was not answered. code: what kind of failure it is, which decides about the HTTP status."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message = str(message)
        self._code = code

    def message(self) -> str:
        """The words."""
        return self._message

    def code(self) -> int:
        """One of the class's numbers."""
        return self._code

    def __str__(self) -> str:
        return self._message

    def error(self) -> PreforkError:
        """As a client is told of it."""
        return _STATUSES.get(self._code, BadRequest)(self._message)


_STATUSES: dict[int, type[PreforkError]] = {
    TritonError.INTERNAL: ModelFailed,
    TritonError.NOT_FOUND: NotFound,
    TritonError.UNAVAILABLE: Unavailable,
    TritonError.UNSUPPORTED: NotImplementedHere,
}
"""The others are a 400, as Triton answers them."""


class InferenceResponse:
    """One answer: output tensors, or an error, with which they do not count. parameters: V2's, of the response."""

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        for each in output_tensors:
            if not isinstance(each, Tensor):
                raise TritonModelException(f"output_tensors takes tensors, not a {type(each).__name__}")
        self._tensors = list(output_tensors)
        self._error = error
        self._parameters = dict(parameters or {})

    def output_tensors(self) -> list[Tensor]:
        """The tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error, if it is one."""
        return self._error

    def parameters(self) -> dict[str, Any]:
        """V2's parameters."""
        return self._parameters


def payload(response: Any, method: str) -> Payload:
    """A model's response as an answer, with what its own metrics have changed by.

    Raises the error that it is, and BadAnswer for what is no response.
    """
    if not isinstance(response, InferenceResponse):
        raise BadAnswer(f"an InferenceResponse is needed for each request, not a {type(response).__name__}")
    error = response.error()
    if error is not None:
        raise (error if isinstance(error, TritonError) else TritonError(str(error))).error()
    tensors = {each.name(): each.as_numpy() for each in response.output_tensors()}
    metrics = stamped(changes(), METRIC_NAMES[method]) or None
    return Payload(Kind.TENSORS, tensors, method, parameters=response.parameters() or None, metrics=metrics)

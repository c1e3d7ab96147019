"""`ResponseSender`: answers that a model sends instead of returning them, from any thread, also when `execute` has returned."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from prefork.errors import BadAnswer, PreforkError, Unavailable
from prefork.model.outbox import SenderClosed
from prefork.model.sender import Sender
from prefork.payload import Payload
from prefork.triton.exception import TritonModelException
from prefork.triton.response import InferenceResponse, payload

FINAL = 1
_GLANCE = 0.05
"""Seconds between two looks at whether anybody waits for an answer that is still to be sent."""

_CLOSED = "Unable to send response. Response sender has been closed."


class Way(Protocol):
    """Where responses go."""

    def put(self, response: InferenceResponse | None, *, final: bool) -> None:
        """Send one, or only the end. Raises TritonModelException where that is not possible."""
        ...

    def is_cancelled(self) -> bool:
        """Whether nobody waits for more."""
        ...


class ResponseSender:
    """Sends a request's responses."""

    def __init__(self, way: Way) -> None:
        self._way = way

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, the end (`TRITONSERVER_RESPONSE_COMPLETE_FINAL`), or both. Raises TritonModelException."""
        if flags not in (0, FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException("a response is needed unless the flag says that it is the end")
        if response is not None and not isinstance(response, InferenceResponse):
            raise TritonModelException(f"an InferenceResponse is needed, not a {type(response).__name__}")
        self._way.put(response, final=flags == FINAL)

    def is_cancelled(self) -> bool:
        """Whether nobody waits for more."""
        return self._way.is_cancelled()


class Many:
    """Any number of responses, through the sender of a model of ours."""

    def __init__(self, sender: Sender, method: str) -> None:
        self._sender = sender
        self._method = method

    def put(self, response: InferenceResponse | None, *, final: bool) -> None:
        """See `Way`. An error is the end."""
        try:
            if response is None:
                self._sender.close()
            else:
                self._sender.send(payload(response, self._method), final=final)
        except SenderClosed:
            raise TritonModelException(_CLOSED) from None
        except PreforkError as error:
            self._sender.close(error)

    def is_cancelled(self) -> bool:
        """See `Way`."""
        return self._sender.cancelled()


class One:
    """The only response of a request, for who waits for it. cancelled: whether nobody waits for it."""

    def __init__(self, method: str, cancelled: Callable[[], bool] | None) -> None:
        self._method = method
        self._cancelled = cancelled
        self._response: InferenceResponse | None = None
        self._over = threading.Event()

    def put(self, response: InferenceResponse | None, *, final: bool) -> None:
        """See `Way`."""
        if self._over.is_set():
            raise TritonModelException(_CLOSED)
        if response is not None and self._response is not None:
            raise TritonModelException("Unable to send response. This model cannot send more than one response.")
        if response is None and self._response is None:
            raise TritonModelException("Unable to send response. The end cannot be sent before a response.")
        self._response = response or self._response
        if final:
            self._over.set()

    def is_cancelled(self) -> bool:
        """See `Way`."""
        return self._cancelled is not None and self._cancelled()

    def wait(self, is_kept: Callable[[], object]) -> Payload:
        """The response, once it is there. is_kept: whether the model still has a sender.

        Raises the error that the response is, Unavailable when nobody waits for it any more, and BadAnswer when none can come.
        """
        while not self._over.wait(_GLANCE):
            if self.is_cancelled():
                raise Unavailable("nobody waits for the answer any more")
            if not is_kept() and not self._over.is_set():
                if self._response is not None:
                    break
                raise BadAnswer("execute has returned None, and has let go of its response sender without a response")
        return payload(self._response, self._method)

"""A `predict` whose inputs and outputs stand in a table instead of in annotations: that of a saved model.

It takes what every protocol sends, checks it against the table, and answers named tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from prefork.payload import Kind, Payload, TensorSpec

Array = np.ndarray[Any, Any]
Run = Callable[[Any, Mapping[str, Any]], Mapping[str, Array]]
"""What a saved model does with the inputs that its table has gathered, and the request's parameters: outputs by name."""


class Takes(Protocol):
    """The inputs of a saved model."""

    @property
    def is_batched(self) -> bool:
        """Whether requests may be put together: any number of rows is taken."""
        ...

    def described(self) -> tuple[TensorSpec, ...]:
        """As V2's metadata lists them."""
        ...

    def gather(self, request: Payload) -> Any:
        """What the model is called with. Raises BadRequest naming the input or the column."""
        ...


class Declared:
    """A `predict` of a saved model.

    takes: its inputs. outputs: what it answers; None where that is known only from an answer. labels: of an output's classes.
    example: inputs by name or one matrix that the model is known to take.
    """

    streams = False
    inputs: tuple[TensorSpec, ...] | None = None  # protocols let everything through: `takes` says what is wrong with it

    def __init__(
        self,
        takes: Takes,
        outputs: tuple[TensorSpec, ...] | None,
        labels: dict[str, tuple[str, ...]],
        run: Run,
        platform: str = "",
        *,
        example: Any = None,
    ) -> None:
        self.takes = takes
        self.outputs = outputs
        self.labels = labels
        self.platform = platform
        self.example = example
        self._run = run

    def __call__(self, request: Payload) -> Payload:
        """The answer to a request. Raises BadRequest, and what the model raises."""
        outputs = self._run(self.takes.gather(request), request.parameters or {})
        answer = Payload(Kind.TENSORS, dict(outputs), request.method)
        if len(answer.value) == 1:
            answer.names = self._names(*next(iter(answer.value.items())))
        return answer

    call = __call__

    @staticmethod
    def answer(result: Any, request: Payload) -> Payload:  # noqa: ARG004 - as `Named.answer`
        """A result is an answer already."""
        assert isinstance(result, Payload)
        return result

    def _names(self, output: str, array: Array) -> list[Any] | None:
        """The classes as names of an output's columns, where there is one for each."""
        labels = self.labels.get(output, ())
        return list(labels) if array.ndim > 1 and array.shape[-1] == len(labels) else None

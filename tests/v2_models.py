"""The models of the recorded V2 repository, as classes of the typed style."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypedDict

import numpy as np

from prefork import TensorSpec, Unavailable

Rows4 = Annotated[np.ndarray, TensorSpec("FP32", (-1, 4))]
Int1 = Annotated[np.ndarray, TensorSpec("INT32", (1,))]


class AddOut(TypedDict):
    B: Rows4


class Add:
    """B = A + 1."""

    def predict(self, A: Rows4) -> AddOut:
        return {"B": A + np.float32(1)}


class CountOut(TypedDict):
    I: Int1  # noqa: E741 - the recorded model's name


class Count:
    """0, 1, ... N-1, one answer each."""

    def predict(self, N: Int1) -> Iterator[CountOut]:
        if N[0] < 0:
            raise ValueError("negative count")
        for i in range(int(N[0])):
            yield {"I": np.array([i], dtype=np.int32)}


class TwoOut(TypedDict):
    SUM: Annotated[np.ndarray, TensorSpec("FP64", (-1,))]
    TEXT: Annotated[np.ndarray, TensorSpec("BYTES", (-1,))]


class Two:
    """SUM = X + Y; TEXT names each element; an X of -1 raises, of -2 is unavailable."""

    def predict(
        self,
        X: Annotated[np.ndarray, TensorSpec("INT32", (-1,))],
        Y: Annotated[np.ndarray, TensorSpec("FP64", (-1,))],
    ) -> TwoOut:
        if X[0] == -1:
            raise ValueError("minus one")
        if X[0] == -2:
            raise Unavailable("minus two")
        total = X.astype(np.float64) + Y
        text = np.array([f"n{value:g}".encode() for value in total], dtype=object)
        return {"SUM": total, "TEXT": text}


def echo(datatype: str) -> type:
    """A class that answers X as Y, both of that datatype and of any length."""
    spec = TensorSpec(datatype, (-1,))

    class Echo:
        def predict(self, X):
            return {"Y": X}

    out = TypedDict("out", {"Y": Annotated[np.ndarray, spec]})  # noqa: UP013 - the annotation is made here
    Echo.predict.__annotations__ = {"X": Annotated[np.ndarray, spec], "return": out}
    return Echo


_ECHOES = {
    "bool": "BOOL", "bytes": "BYTES", "fp16": "FP16", "fp32": "FP32", "fp64": "FP64", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "int8": "INT8", "uint64": "UINT64", "uint8": "UINT8",
}  # fmt: skip


def model(name: str) -> type:
    """The class that stands for the recorded model of that name."""
    if name.startswith("echo_"):
        return echo(_ECHOES[name.removeprefix("echo_")])
    return {"add": Add, "count": Count, "two": Two}[name]

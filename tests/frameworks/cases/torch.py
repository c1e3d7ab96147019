"""PyTorch's modules: scripted, traced and exported, with one and with two inputs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from frameworks.cases.case import Case, Tensors

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.0, 3.0, 5.0, 2.0]], np.float32)
SAID = json.dumps([{"name": "x", "datatype": "FP32", "shape": [-1, 4]}])
BOTH = {"x": ROWS, "at": np.array([2, 0])}
BOTH_SAID = json.dumps([
    {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
    {"name": "at", "datatype": "INT64", "shape": [-1]},
])  # fmt: skip


class Dense(torch.nn.Module):
    """One input, one output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        with torch.no_grad():
            self.layer.weight.copy_(torch.linspace(-1, 1, 12).reshape(3, 4))
            self.layer.bias.copy_(torch.tensor([0.5, -0.5, 0.25]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Table(torch.nn.Module):
    """Two inputs of two datatypes, and two outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> dict[str, torch.Tensor]:
        found = x + self.rows[at]
        return {"sum": found, "best": found.argmax(1)}


class Pair(torch.nn.Module):
    """A tuple."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.sum(1)


def answered(module: Any, *given: Any) -> dict[str, Any]:
    with torch.inference_mode():
        found = module(*(torch.from_numpy(each) for each in given))
    if isinstance(found, tuple):
        found = {f"output_{at}": each for at, each in enumerate(found)}
    found = found if isinstance(found, dict) else {"output": found}
    return {name: each.numpy() for name, each in found.items()}


def scripted(module: type[torch.nn.Module], *given: Any) -> Callable[[Path], tuple[Path, Tensors]]:
    def make(folder: Path) -> tuple[Path, Tensors]:
        made = module().eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.script(made).save(folder / "model.pt")
        return folder / "model.pt", answered(made, *given)

    return make


def traced(folder: Path) -> tuple[Path, Tensors]:
    """With another number of rows than is asked."""
    made = Dense().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(made, torch.zeros(5, 4)).save(folder / "model.pt")
    return folder / "model.pt", answered(made, ROWS)


def exported(module: type[torch.nn.Module], *given: Any) -> Callable[[Path], tuple[Path, Tensors]]:
    def make(folder: Path) -> tuple[Path, Tensors]:
        made, rows = module().eval(), torch.export.Dim("rows")
        tensors = tuple(torch.from_numpy(each) for each in given)
        program = torch.export.export(made, tensors, dynamic_shapes=tuple({0: rows} for _ in given))
        torch.export.save(program, folder / "model.pt2")
        return folder / "model.pt2", answered(made, *given)

    return make


CASES = [
    Case("torch", "torch-scripted", scripted(Dense, ROWS), {"x": ROWS}, "torch", parameters={"inputs": SAID}),
    Case(
        "torch", "torch-scripted-two", scripted(Table, *BOTH.values()), BOTH, "torch", parameters={"inputs": BOTH_SAID}
    ),
    Case("torch", "torch-traced", traced, {"x": ROWS}, "torch"),
    Case("torch", "torch-exported", exported(Dense, ROWS), {"x": ROWS}, "torch"),
    Case("torch", "torch-exported-two", exported(Table, *BOTH.values()), BOTH, "torch"),
    Case("torch", "torch-exported-pair", exported(Pair, ROWS), {"x": ROWS}, "torch"),
]

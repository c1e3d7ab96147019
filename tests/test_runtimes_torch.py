"""What is torch's is known without torch, from the names in its archives."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from prefork.errors import ModelLoadError
from prefork.runtimes import torch
from prefork.runtimes.recognition import recognise
from prefork.runtimes.runtime import Options

SCRIPT = ("m/data.pkl", "m/code/__torch__.py", "m/constants.pkl", "m/version")
PROGRAM = ("m/archive_format", "m/models/model.json", "m/data/weights/weight_0")
OLD_PROGRAM = ("serialized_exported_program.json", "serialized_state_dict.json", "version")
COMPILED = ("m/archive_format", "m/data/aotinductor/model/model.so")
WEIGHTS = ("m/data.pkl", "m/data/0", "m/version")


def archive(folder: Path, names: tuple[str, ...]) -> Path:
    path = folder / "model"
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, b"")
    return path


@pytest.mark.parametrize(
    "names", [SCRIPT, PROGRAM, OLD_PROGRAM, COMPILED], ids=["script", "program", "old", "compiled"]
)
def test_archives(tmp_path: Path, names: tuple[str, ...]):
    """TorchScript has code, and torch.export writes a program."""
    assert recognise(archive(tmp_path, names)).runtime == "torch"


@pytest.mark.parametrize(
    "names", [WEIGHTS, ("models/model.json",), ("constants.pkl",), ()], ids=["weights", "json", "constants", "empty"]
)
def test_other_archives(tmp_path: Path, names: tuple[str, ...]):
    """Weights are no model, so that a class beside them is served, and other archives are not torch's."""
    with pytest.raises(ModelLoadError, match="no saved model of a known kind"):
        recognise(archive(tmp_path, names))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (WEIGHTS, "holds no program: it is a state_dict"),
        (COMPILED, "is a package of AOTInductor, compiled for one machine"),
    ],
    ids=["weights", "compiled"],
)
def test_refusals(tmp_path: Path, names: tuple[str, ...], message: str):
    """What cannot be served is refused in words, before torch is imported."""
    with pytest.raises(ModelLoadError, match=message):
        torch.open_(archive(tmp_path, names), Options())

"""PyTorch: TorchScript files and programs of `torch.export` (.pt2), on the CPU or a GPU, without gradients.

Weights alone (a state_dict) are no model: they are refused in words.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import msgspec

from prefork.errors import ModelLoadError
from prefork.runtimes.runtime import Opened, Options, Runtime, needed, threads
from prefork.runtimes.torch_call import last_line
from prefork.runtimes.torch_program import open_program
from prefork.runtimes.torch_script import open_script

SCRIPT, PROGRAM, COMPILED, WEIGHTS = "TorchScript", "exported program", "compiled program", "weights"


def recognises(path: Path) -> bool:
    """An archive with TorchScript code, or one of `torch.export`. Weights are not: they have no code."""
    return kind_of(path) in {SCRIPT, PROGRAM, COMPILED}


def kind_of(path: Path) -> str:
    """What torch has saved there, from the names in its archive; empty for anything else."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return ""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    inside = {name.partition("/")[2] for name in names}  # all in one folder, called as the file was
    if "serialized_exported_program.json" in names:  # torch before 2.8
        return PROGRAM
    if "archive_format" in inside:
        return PROGRAM if any(re.fullmatch(r"models/[^/]+\.json", name) for name in inside) else COMPILED
    if "constants.pkl" in inside and any(name.startswith("code/") for name in inside):
        return SCRIPT
    return WEIGHTS if "data.pkl" in inside else ""


def open_(path: Path, options: Options) -> Opened:
    """The model in the file, on its device. Raises ModelLoadError."""
    kind = kind_of(path)
    if kind not in {SCRIPT, PROGRAM}:
        raise ModelLoadError(f"{path} {_refusal(kind)}")
    with needed("torch", "torch"):
        import torch
    count = threads(options)
    torch.set_num_threads(count)
    device = _device(torch, options)
    opened = (open_program if kind == PROGRAM else open_script)(torch, path, options, device)
    facts = f"{kind}, torch {torch.__version__}, {device}, {count} threads"
    close = torch.cuda.empty_cache if device.type == "cuda" else opened.close
    return msgspec.structs.replace(opened, facts=facts, close=close)


def _refusal(kind: str) -> str:
    if kind == COMPILED:
        return "is a package of AOTInductor, compiled for one machine; save the program itself with torch.export.save"
    return (
        "holds no program: it is a state_dict, or a pickled module whose code is elsewhere; save the model with torch.export.save, or "
        "write a class whose load() reads the weights"
    )


def _device(torch: Any, options: Options) -> Any:
    """The one asked for; the GPU that the instance has, if torch can use it; else the CPU."""
    said = options.parameters.get("device")
    has_cuda = torch.cuda.is_available()
    if said is None:
        return torch.device("cuda" if options.device is not None and has_cuda else "cpu")
    try:
        device = torch.device(said)
    except (RuntimeError, TypeError) as error:
        raise ModelLoadError(f"parameters: device {said!r}: {last_line(error)}") from error
    if device.type == "cuda" and not has_cuda:
        raise ModelLoadError(f"parameters: device {said!r}: torch {torch.__version__} finds no GPU here")
    return device


RUNTIME = Runtime(
    name="torch",
    platform="pytorch_torch",
    extra="torch",
    recognises=recognises,
    open=open_,
    why="it is loaded after the fork, which its threads would not survive, and gives its memory back; with a GPU it has its own process",
    parameters={
        "device": "cpu, cuda or cuda:N; the instance's GPU, else the CPU.",
        "threads": "Threads of one request.",
        "compile": "Whether torch.compile makes the program faster, which takes a while at the first requests.",
        "inputs": "TorchScript: a list of name, datatype and shape (-1 is free), as the file does not say them.",
    },
)

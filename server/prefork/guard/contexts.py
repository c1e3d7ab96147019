"""What a framework keeps that a fork does not copy: a GPU's context and TensorFlow's."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from prefork.guard.mappings import libraries

_DEVICE = re.compile(r"/dev/nvidia(\d+|-uvm)$")
_DRIVER = re.compile(r"libcuda\.so")


def cuda() -> str:
    """How it shows that CUDA is initialised in this process; nothing where it is not."""
    torch = sys.modules.get("torch.cuda")
    if torch is not None and _truth(torch, "is_initialized"):
        return "torch.cuda is initialised"
    device = next((path for path in _open_files() if _DEVICE.match(path)), "")
    if device and any(_DRIVER.match(os.path.basename(path)) for path in libraries()):  # noqa: PTH119
        return f"libcuda has {device} open"
    return ""


def cuda_in_use() -> bool:
    """As `cuda`, where it has to be asked often: only whether torch says so or a device is open."""
    torch = sys.modules.get("torch.cuda")
    if torch is not None and _truth(torch, "is_initialized"):
        return True
    return any(map(_DEVICE.match, _open_files()))


def tensorflow() -> bool:
    """Whether TensorFlow has a live context: it has run an operation or loaded a model."""
    module = sys.modules.get("tensorflow.python.eager.context")
    context = getattr(module, "_context", None)
    return getattr(context, "_context_handle", None) is not None


def _truth(module: Any, name: str) -> bool:
    ask = getattr(module, name, None)
    return bool(ask is not None and ask())


def _open_files() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
        except OSError:  # the directory's own
            continue
    return found
